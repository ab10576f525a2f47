-- +goose Up

-- The functions do on the server, in one round trip, what the protocol's claim,
-- outcome and failure ask for. search_path is fixed to the schema they are made
-- in. lock_timeout holds for the function alone, foreign-key checks included,
-- and is the session's own again when the function returns.

-- platform_idempotency_claim inserts the key's row, or reads it back and says
-- what it found:
--   claimed    the row is ours, processing (or finished at once, if p_status says so)
--   replay     a finished outcome is there
--   in_flight  another claim's lease has o_left_ms to run
--   mismatch   the key belongs to another request
-- A rival's open transaction on the row is waited for at most lock_timeout,
-- then SQLSTATE 55P03 is raised.
-- +goose StatementBegin
CREATE FUNCTION platform_idempotency_claim(
    p_key bytea, p_fingerprint bytea, p_expires_ms bigint, p_idle_ms bigint, p_rerun boolean,
    p_status text, p_outcome jsonb, p_payload bytea,
    OUT o_disposition text, OUT o_id bigint, OUT o_attempt integer, OUT o_status text,
    OUT o_outcome text, OUT o_payload bytea, OUT o_left_ms bigint, OUT o_xid text)
LANGUAGE plpgsql
SET search_path FROM CURRENT
SET lock_timeout = '100ms'
AS $$
DECLARE
    r record;
    v_limit text;
BEGIN
    -- The row may vanish or change between the insert and the read: look again.
    FOR i IN 1..3 LOOP
        INSERT INTO platform_idempotency_keys AS k
            (idempotency_key, request_fingerprint, status, outcome, expires_at)
        VALUES (p_key, p_fingerprint, p_status, p_outcome,
                clock_timestamp() + p_expires_ms * interval '1 millisecond')
        ON CONFLICT ON CONSTRAINT platform_idempotency_keys_key DO NOTHING
        RETURNING k.id INTO o_id;
        IF FOUND THEN
            o_attempt := 1;
        ELSE
            SELECT k.id, k.attempt, k.status, k.outcome, k.request_fingerprint, k.expires_at,
                   clock_timestamp() AS read_at, p.payload
              INTO r
              FROM platform_idempotency_keys k LEFT JOIN platform_idempotency_payloads p ON p.id = k.id
             WHERE k.idempotency_key = p_key;
            CONTINUE WHEN NOT FOUND;
            o_id := r.id;
            o_attempt := r.attempt;
            o_status := r.status;
            o_left_ms := ceil(extract(epoch FROM r.expires_at - r.read_at) * 1000);
            IF r.request_fingerprint <> p_fingerprint THEN
                o_disposition := 'mismatch';
                RETURN;
            END IF;
            IF r.status = 'completed'
               OR (r.status = 'failed_permanent' AND (NOT p_rerun OR r.outcome ? 'x')) THEN
                o_disposition := 'replay';
                o_outcome := r.outcome::text;
                o_payload := r.payload;
                RETURN;
            END IF;
            IF r.status = 'processing' AND r.expires_at > r.read_at THEN
                o_disposition := 'in_flight';
                RETURN;
            END IF;
            -- Failed, or abandoned by its lease: taken over if it is still what was read.
            UPDATE platform_idempotency_keys AS k
               SET status = p_status, outcome = p_outcome, attempt = k.attempt + 1,
                   expires_at = clock_timestamp() + p_expires_ms * interval '1 millisecond',
                   updated_at = clock_timestamp()
             WHERE k.id = r.id AND k.attempt = r.attempt AND k.status = r.status AND k.expires_at = r.expires_at
            RETURNING k.attempt INTO o_attempt;
            CONTINUE WHEN NOT FOUND;
            DELETE FROM platform_idempotency_payloads WHERE id = r.id;
        END IF;
        IF p_payload IS NOT NULL THEN
            INSERT INTO platform_idempotency_payloads (id, payload) VALUES (o_id, p_payload);
        END IF;
        IF p_idle_ms > 0 THEN
            -- The transaction must end with the attempt, though its client vanishes: PostgreSQL 17 says so
            -- exactly, before it the last statement counts. Neither is ever raised.
            v_limit := current_setting('idle_in_transaction_session_timeout');
            IF v_limit = '0' OR v_limit::interval > p_idle_ms * interval '1 millisecond' THEN
                PERFORM set_config('idle_in_transaction_session_timeout', p_idle_ms::text, true);
            END IF;
            v_limit := current_setting('transaction_timeout', true);
            IF v_limit = '0' OR v_limit::interval > p_idle_ms * interval '1 millisecond' THEN
                PERFORM set_config('transaction_timeout', p_idle_ms::text, true);
            END IF;
        END IF;
        o_disposition := 'claimed';
        o_status := p_status;
        o_left_ms := p_expires_ms;
        o_xid := pg_current_xact_id()::text;
        IF current_setting('synchronous_commit') = 'off' THEN
            PERFORM set_config('synchronous_commit', 'local', true); -- what is answered must survive a crash
        END IF;
        RETURN;
    END LOOP;
    o_disposition := 'in_flight';
    o_left_ms := 0;
END;
$$;
-- +goose StatementEnd

-- platform_idempotency_finish writes the outcome of the claim that this very
-- transaction made. It raises EO001 unless it matches exactly that row, attempt,
-- state and transaction, so that a COMMIT sent behind it is never executed.
-- +goose StatementBegin
CREATE FUNCTION platform_idempotency_finish(
    p_id bigint, p_attempt integer, p_xid text, p_outcome jsonb, p_payload bytea)
RETURNS void
LANGUAGE plpgsql
SET search_path FROM CURRENT
AS $$
BEGIN
    IF current_setting('synchronous_commit') = 'off' THEN
        PERFORM set_config('synchronous_commit', 'local', true); -- what is answered must survive a crash
    END IF;
    UPDATE platform_idempotency_keys
       SET status = 'completed', outcome = p_outcome, updated_at = clock_timestamp()
     WHERE id = p_id AND attempt = p_attempt AND status = 'processing'
       AND pg_current_xact_id_if_assigned()::text = p_xid;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'the claim is not in this transaction any more' USING ERRCODE = 'EO001';
    END IF;
    IF p_payload IS NOT NULL THEN
        INSERT INTO platform_idempotency_payloads (id, payload) VALUES (p_id, p_payload);
    END IF;
END;
$$;
-- +goose StatementEnd

-- platform_idempotency_fail records the failure of a claim that was rolled back.
-- A row that someone else has made or changed since then is left alone.
-- Without a status nothing is recorded: it only says whether the claim stands.
-- +goose StatementBegin
CREATE FUNCTION platform_idempotency_fail(
    p_key bytea, p_fingerprint bytea, p_id bigint, p_attempt integer,
    p_status text, p_outcome jsonb, p_payload bytea, p_expires_ms bigint,
    OUT o_recorded boolean, OUT o_ours boolean)
LANGUAGE plpgsql
SET search_path FROM CURRENT
SET lock_timeout = '100ms'
AS $$
DECLARE
    v_id bigint;
BEGIN
    IF p_status IS NULL THEN
        NULL;
    ELSIF p_attempt = 1 THEN
        INSERT INTO platform_idempotency_keys AS k
            (idempotency_key, request_fingerprint, status, outcome, expires_at)
        VALUES (p_key, p_fingerprint, p_status, p_outcome,
                clock_timestamp() + p_expires_ms * interval '1 millisecond')
        ON CONFLICT ON CONSTRAINT platform_idempotency_keys_key DO NOTHING
        RETURNING k.id INTO v_id;
    ELSE
        UPDATE platform_idempotency_keys AS k
           SET status = p_status, outcome = p_outcome, attempt = p_attempt,
               expires_at = clock_timestamp() + p_expires_ms * interval '1 millisecond',
               updated_at = clock_timestamp()
         WHERE k.id = p_id AND k.attempt = p_attempt - 1 AND k.request_fingerprint = p_fingerprint
           AND (k.status IN ('failed_retryable', 'failed_permanent')
                OR (k.status = 'processing' AND k.expires_at <= clock_timestamp()))
        RETURNING k.id INTO v_id;
    END IF;
    o_recorded := v_id IS NOT NULL;
    IF o_recorded THEN
        DELETE FROM platform_idempotency_payloads WHERE id = v_id;
        IF p_payload IS NOT NULL THEN
            INSERT INTO platform_idempotency_payloads (id, payload) VALUES (v_id, p_payload);
        END IF;
    END IF;
    -- A claim that is committed though it should have been rolled back: the body ended the transaction.
    o_ours := NOT o_recorded AND EXISTS (
        SELECT FROM platform_idempotency_keys WHERE id = p_id AND attempt = p_attempt AND status = 'processing');
END;
$$;
-- +goose StatementEnd

-- platform_idempotency_bar bars a key for good whose transaction the body ended
-- by itself: what it wrote may stand, so it must never run again.
-- +goose StatementBegin
CREATE FUNCTION platform_idempotency_bar(
    p_key bytea, p_fingerprint bytea, p_id bigint, p_attempt integer,
    p_outcome jsonb, p_expires_ms bigint,
    OUT o_recorded boolean)
LANGUAGE plpgsql
SET search_path FROM CURRENT
SET lock_timeout = '100ms'
AS $$
DECLARE
    v_id bigint;
BEGIN
    IF current_setting('synchronous_commit') = 'off' THEN
        PERFORM set_config('synchronous_commit', 'local', true); -- what is answered must survive a crash
    END IF;
    INSERT INTO platform_idempotency_keys AS k
        (idempotency_key, request_fingerprint, status, outcome, attempt, expires_at)
    VALUES (p_key, p_fingerprint, 'failed_permanent', p_outcome, p_attempt,
            clock_timestamp() + p_expires_ms * interval '1 millisecond')
    ON CONFLICT ON CONSTRAINT platform_idempotency_keys_key DO UPDATE
        SET status = 'failed_permanent', outcome = excluded.outcome, attempt = excluded.attempt,
            expires_at = excluded.expires_at, updated_at = clock_timestamp()
        WHERE k.id = p_id AND k.request_fingerprint = p_fingerprint
          AND ((k.status = 'processing' AND k.attempt = p_attempt)
               OR (k.status <> 'completed' AND k.attempt = p_attempt - 1))
    RETURNING k.id INTO v_id;
    o_recorded := v_id IS NOT NULL;
    IF o_recorded THEN
        DELETE FROM platform_idempotency_payloads WHERE id = v_id;
    END IF;
END;
$$;
-- +goose StatementEnd

-- platform_idempotency_record writes the outcome of a claim that was committed with a
-- lease. It changes nothing when the claim was taken over meanwhile, and says the
-- same again when it is sent again because its answer was lost.
-- +goose StatementBegin
CREATE FUNCTION platform_idempotency_record(
    p_id bigint, p_attempt integer, p_status text, p_outcome jsonb, p_payload bytea, p_expires_ms bigint,
    OUT o_recorded boolean)
LANGUAGE plpgsql
SET search_path FROM CURRENT
SET lock_timeout = '100ms'
AS $$
BEGIN
    IF current_setting('synchronous_commit') = 'off' THEN
        PERFORM set_config('synchronous_commit', 'local', true); -- what is answered must survive a crash
    END IF;
    UPDATE platform_idempotency_keys
       SET status = p_status, outcome = p_outcome, updated_at = clock_timestamp(),
           expires_at = clock_timestamp() + p_expires_ms * interval '1 millisecond'
     WHERE id = p_id AND attempt = p_attempt AND status = 'processing';
    IF FOUND THEN
        o_recorded := true;
        IF p_payload IS NOT NULL THEN
            INSERT INTO platform_idempotency_payloads (id, payload) VALUES (p_id, p_payload);
        END IF;
        RETURN;
    END IF;
    o_recorded := EXISTS (SELECT FROM platform_idempotency_keys
        WHERE id = p_id AND attempt = p_attempt AND status = p_status AND outcome = p_outcome);
END;
$$;
-- +goose StatementEnd
