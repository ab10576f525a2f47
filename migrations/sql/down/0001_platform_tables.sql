-- +goose Down
DROP TABLE effectonce_ledger;
DROP TABLE platform_idempotency_payloads;
DROP TABLE platform_idempotency_keys;
