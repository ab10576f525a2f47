-- +goose Down
DROP TABLE idempotency_payloads;
DROP TABLE idempotency_keys;
