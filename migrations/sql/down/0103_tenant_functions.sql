-- +goose Down
DROP FUNCTION idempotency_record;
DROP FUNCTION idempotency_bar;
DROP FUNCTION idempotency_fail;
DROP FUNCTION idempotency_finish;
DROP FUNCTION idempotency_claim;
