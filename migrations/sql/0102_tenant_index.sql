-- +goose NO TRANSACTION
-- +goose Up

-- A concurrent build waits for every older transaction: it gets more time than
-- the runner's lock_timeout, which is put back afterwards. An earlier attempt that
-- was interrupted leaves an INVALID index behind: it is dropped first.
SELECT set_config('effectonce.lock_timeout', current_setting('lock_timeout'), false);
SET lock_timeout = '15min';

DROP INDEX CONCURRENTLY IF EXISTS idempotency_keys_expires_at_idx;

-- For the purge. No index mentions status: updates stay heap-only.
CREATE INDEX CONCURRENTLY idempotency_keys_expires_at_idx
    ON idempotency_keys (expires_at);

DROP INDEX CONCURRENTLY IF EXISTS idempotency_keys_tenant_id_expires_at_idx;

-- For a tenant's quota.
CREATE INDEX CONCURRENTLY idempotency_keys_tenant_id_expires_at_idx
    ON idempotency_keys (tenant_id, expires_at);

SELECT set_config('lock_timeout', current_setting('effectonce.lock_timeout'), false);
