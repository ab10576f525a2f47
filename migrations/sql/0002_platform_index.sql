-- +goose NO TRANSACTION
-- +goose Up

-- A concurrent build waits for every older transaction: it gets more time than
-- the runner's lock_timeout, which is put back afterwards. An earlier attempt that
-- was interrupted leaves an INVALID index behind: it is dropped first.
SELECT set_config('effectonce.lock_timeout', current_setting('lock_timeout'), false);
SET lock_timeout = '15min';

DROP INDEX CONCURRENTLY IF EXISTS platform_idempotency_keys_expires_at_idx;

-- For the purge and the quota. No index mentions status: updates stay heap-only.
CREATE INDEX CONCURRENTLY platform_idempotency_keys_expires_at_idx
    ON platform_idempotency_keys (expires_at);

SELECT set_config('lock_timeout', current_setting('effectonce.lock_timeout'), false);
