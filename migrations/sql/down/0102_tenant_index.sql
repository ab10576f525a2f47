-- +goose Down
SELECT set_config('effectonce.lock_timeout', current_setting('lock_timeout'), false);
SET lock_timeout = '15min';
DROP INDEX CONCURRENTLY IF EXISTS idempotency_keys_tenant_id_expires_at_idx;
DROP INDEX CONCURRENTLY IF EXISTS idempotency_keys_expires_at_idx;
SELECT set_config('lock_timeout', current_setting('effectonce.lock_timeout'), false);
