-- name: sqlite
-- One text for each message, so that no driver's way to read a row, a time or bytes matters.
SELECT json_array(
    settled_at IS NULL, id, type, key, aggregate, topic,
    CASE WHEN payload IS NOT NULL OR body IS NOT NULL THEN hex(coalesce(payload, body)) END, content_type, headers,
    correlation_id, causation_id, traceparent, idempotency_key, time, expires_at) AS message
FROM outbox
ORDER BY seq

-- name: postgres
SELECT CAST(json_build_array(
    settled_at IS NULL, id, type, key, aggregate, topic,
    encode(coalesce(convert_to(payload, 'UTF8'), body), 'hex'), content_type, headers,
    correlation_id, causation_id, traceparent, idempotency_key,
    CAST(extract(epoch FROM time) * 1000000 AS bigint), CAST(extract(epoch FROM expires_at) * 1000000 AS bigint)) AS text)
    AS message
FROM outbox
ORDER BY seq

-- name: mysql
-- In hexadecimal: the connection may be one that has not all letters.
SELECT hex(json_array(
    settled_at IS NULL, id, type, `key`, aggregate, topic,
    hex(coalesce(CAST(payload AS binary), body)), content_type, headers,
    correlation_id, causation_id, traceparent, idempotency_key,
    timestampdiff(MICROSECOND, '1970-01-01', time), timestampdiff(MICROSECOND, '1970-01-01', expires_at))) AS message
FROM outbox
ORDER BY seq
