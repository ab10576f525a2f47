-- +goose Up

-- The platform's keys. A finished row counts until it is deleted, expired or not.
-- expires_at is the end of the lease while processing, of the retention afterwards.
CREATE TABLE platform_idempotency_keys (
    id                  bigint      NOT NULL GENERATED ALWAYS AS IDENTITY,
    idempotency_key     bytea       NOT NULL,
    request_fingerprint bytea       NOT NULL,
    status              text        NOT NULL DEFAULT 'processing',
    attempt             integer     NOT NULL DEFAULT 1,
    outcome             jsonb       NOT NULL DEFAULT '{}'::jsonb,
    expires_at          timestamptz NOT NULL,
    created_at          timestamptz NOT NULL DEFAULT clock_timestamp(),
    updated_at          timestamptz NOT NULL DEFAULT clock_timestamp(),
    CONSTRAINT platform_idempotency_keys_pkey PRIMARY KEY (id),
    CONSTRAINT platform_idempotency_keys_key UNIQUE (idempotency_key),
    CONSTRAINT platform_idempotency_keys_attempt_check CHECK (attempt > 0),
    CONSTRAINT platform_idempotency_keys_check CHECK (status <> 'processing' OR outcome = '{}'),
    CONSTRAINT platform_idempotency_keys_idempotency_key_check CHECK (octet_length(idempotency_key) = 32),
    CONSTRAINT platform_idempotency_keys_outcome_check
        CHECK (jsonb_typeof(outcome) = 'object' AND octet_length(outcome::text) <= 4096),
    CONSTRAINT platform_idempotency_keys_request_fingerprint_check
        CHECK (octet_length(request_fingerprint) = 32),
    CONSTRAINT platform_idempotency_keys_status_check
        CHECK (status IN ('processing', 'completed', 'failed_retryable', 'failed_permanent'))
);

-- Results too large for outcome; id is the key row's. No foreign key: whoever
-- deletes a key deletes its payload in the same transaction.
CREATE TABLE platform_idempotency_payloads (
    id      bigint NOT NULL,
    payload bytea  NOT NULL,
    CONSTRAINT platform_idempotency_payloads_pkey PRIMARY KEY (id)
);

-- The bytes may be ciphertext: compressing them is time lost.
ALTER TABLE platform_idempotency_payloads ALTER COLUMN payload SET STORAGE EXTERNAL;

-- The ledger's random identity: one row, part of every gate key.
CREATE TABLE effectonce_ledger (
    singleton  boolean     NOT NULL DEFAULT true,
    ledger_id  uuid        NOT NULL DEFAULT gen_random_uuid(),
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    CONSTRAINT effectonce_ledger_pkey PRIMARY KEY (singleton),
    CONSTRAINT effectonce_ledger_singleton_check CHECK (singleton)
);

INSERT INTO effectonce_ledger DEFAULT VALUES;
