-- name: put
-- Up to some hundreds of messages in one round trip and one parameter, which every driver can pass: a JSON array of
-- objects. A function scan gives its rows in order, and nothing stands between it and the INSERT (a test reads the plan).
-- As text first: a codec that the user set for json, as is usual with asyncpg, would encode the parameter once more.
INSERT INTO outbox (
    id, type, key, aggregate, topic, payload, body, content_type, headers,
    correlation_id, causation_id, traceparent, idempotency_key, digest, time, due_at, expires_at)
SELECT
    id, type, key, aggregate, topic, payload, decode(body, 'base64'), content_type, headers,
    correlation_id, causation_id, traceparent, idempotency_key, digest, time, due_at, expires_at
FROM json_to_recordset(CAST(CAST(:messages AS text) AS json)) AS m (
    id uuid, type text, key text, aggregate text, topic text, payload text, body text, content_type text, headers text,
    correlation_id text, causation_id text, traceparent text, idempotency_key text, digest text,
    time timestamptz, due_at timestamptz, expires_at timestamptz)
