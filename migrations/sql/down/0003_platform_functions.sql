-- +goose Down
DROP FUNCTION platform_idempotency_record;
DROP FUNCTION platform_idempotency_bar;
DROP FUNCTION platform_idempotency_fail;
DROP FUNCTION platform_idempotency_finish;
DROP FUNCTION platform_idempotency_claim;
