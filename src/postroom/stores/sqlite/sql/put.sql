-- name: put
-- One message of many: SQLite runs in the caller's process, so a row a call costs no round trip.
INSERT INTO outbox (
    id, hash, type, key, aggregate, topic, payload, body, content_type, headers,
    correlation_id, causation_id, traceparent, idempotency_key, digest, time, due_at, expires_at)
VALUES (
    :id, :hash, :type, :key, :aggregate, :topic, :payload, :body, :content_type, :headers,
    :correlation_id, :causation_id, :traceparent, :idempotency_key, :digest, :time, :due_at, :expires_at)
