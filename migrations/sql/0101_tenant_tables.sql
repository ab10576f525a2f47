-- +goose Up

-- The tenants' keys. The table that tenant_id references is the user's own; the
-- name after the marker is all that the runner replaces. Code that locks a
-- tenant's row uses FOR NO KEY UPDATE: FOR UPDATE deadlocks with the foreign key.
CREATE TABLE idempotency_keys (
    id                  bigint      NOT NULL GENERATED ALWAYS AS IDENTITY,
    tenant_id           bigint      NOT NULL,
    idempotency_key     bytea       NOT NULL,
    request_fingerprint bytea       NOT NULL,
    status              text        NOT NULL DEFAULT 'processing',
    attempt             integer     NOT NULL DEFAULT 1,
    outcome             jsonb       NOT NULL DEFAULT '{}'::jsonb,
    expires_at          timestamptz NOT NULL,
    created_at          timestamptz NOT NULL DEFAULT clock_timestamp(),
    updated_at          timestamptz NOT NULL DEFAULT clock_timestamp(),
    CONSTRAINT idempotency_keys_pkey PRIMARY KEY (id),
    CONSTRAINT idempotency_keys_owner_key UNIQUE (tenant_id, idempotency_key),
    CONSTRAINT idempotency_keys_tenant_id_fkey
        FOREIGN KEY (tenant_id) REFERENCES /*tenants*/ tenants (id),
    CONSTRAINT idempotency_keys_attempt_check CHECK (attempt > 0),
    CONSTRAINT idempotency_keys_check CHECK (status <> 'processing' OR outcome = '{}'),
    CONSTRAINT idempotency_keys_idempotency_key_check CHECK (octet_length(idempotency_key) = 32),
    CONSTRAINT idempotency_keys_outcome_check
        CHECK (jsonb_typeof(outcome) = 'object' AND octet_length(outcome::text) <= 4096),
    CONSTRAINT idempotency_keys_request_fingerprint_check
        CHECK (octet_length(request_fingerprint) = 32),
    CONSTRAINT idempotency_keys_status_check
        CHECK (status IN ('processing', 'completed', 'failed_retryable', 'failed_permanent'))
);

-- Results too large for outcome; id is the key row's. No foreign key: whoever
-- deletes a key deletes its payload in the same transaction.
CREATE TABLE idempotency_payloads (
    id      bigint NOT NULL,
    payload bytea  NOT NULL,
    CONSTRAINT idempotency_payloads_pkey PRIMARY KEY (id)
);

-- The bytes may be ciphertext: compressing them is time lost.
ALTER TABLE idempotency_payloads ALTER COLUMN payload SET STORAGE EXTERNAL;
