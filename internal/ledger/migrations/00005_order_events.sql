-- +goose Up

-- What the payment provider told, each event once, with what it did and the answer it got: a repetition gets the same one.
CREATE TABLE flash_sale_payment (
    event_id     text COLLATE "C" PRIMARY KEY CHECK (octet_length(event_id) BETWEEN 1 AND 128),
    order_id     uuid NOT NULL REFERENCES flash_sale_order,
    status       text NOT NULL CHECK (status IN ('SUCCEEDED', 'FAILED')),
    amount       numeric NOT NULL CHECK (amount >= 0),
    currency     text NOT NULL,
    effect       text NOT NULL CHECK (effect IN ('paid', 'failed', 'refund_due')),
    order_status text NOT NULL,    -- the answer
    refund_due   boolean NOT NULL, -- the answer
    -- Written under the lock of the order, so that the payments of an order have the order of their times.
    received_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
    refunded_at  timestamptz,      -- effect refund_due alone: when somebody said that it has been paid back
    CONSTRAINT chk_payment_effect CHECK ((effect = 'failed') = (status = 'FAILED') AND (refunded_at IS NULL OR effect = 'refund_due'))
);

CREATE INDEX ix_flash_sale_payment_order ON flash_sale_payment (order_id);

-- What the rest of the shop has to be told, written by the transaction that made it true. Deleted when the broker has it. The rows of one key
-- are told one after another, in the order of their ids: each was written under a lock (the order's, or the item's) that its predecessor had
-- held until it was committed. Half of each page stays free, so that a claim changes no index: not_before is in none.
CREATE TABLE flash_sale_event (
    id           bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    key          text COLLATE "C" NOT NULL, -- the order's id, or item:N
    type         text NOT NULL,
    item_id      bigint NOT NULL,
    order_id     uuid,   -- of an order, as the next four
    user_id      text,
    status       text,
    trace        text NOT NULL DEFAULT '',
    operation_id uuid,   -- of stock.increased, as the next
    delta        bigint,
    quantity     bigint NOT NULL, -- of the order, or of the item afterwards
    at           timestamptz NOT NULL DEFAULT clock_timestamp(), -- never runs backwards within a key
    not_before   timestamptz NOT NULL DEFAULT now(), -- nobody takes it before: somebody has taken it, or it failed
    attempts     integer NOT NULL DEFAULT 0, -- how often it, or the first one of its key, was told in vain
    retry_at     timestamptz, -- null: never in vain; else its place among those that wait for another attempt
    CONSTRAINT chk_event_type CHECK (CASE
        WHEN type = 'stock.increased' THEN operation_id IS NOT NULL AND delta > 0
        WHEN type LIKE 'order.%' THEN order_id IS NOT NULL AND user_id IS NOT NULL AND status IS NOT NULL
        ELSE false END)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 10000);

CREATE INDEX ix_flash_sale_event_key ON flash_sale_event (key, id);

-- Two queues: what has not failed, in the order in which it happened; and what has, in the order in which it is due again. Neither has to be walked
-- through for what is in the other.
CREATE INDEX ix_flash_sale_event_fresh ON flash_sale_event (id) WHERE retry_at IS NULL;
CREATE INDEX ix_flash_sale_event_again ON flash_sale_event (retry_at, id) WHERE retry_at IS NOT NULL;

-- The events of orders are written by the table itself, so that no transition can forget its event, whoever makes it. Both triggers run once
-- per statement. The search path is that of the migration: whoever changes an order from elsewhere finds the tables, too.

-- +goose StatementBegin
CREATE FUNCTION flash_sale_order_inserted() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    INSERT INTO flash_sale_event (key, type, item_id, order_id, user_id, status, trace, quantity)
    SELECT n.id::text, CASE n.status WHEN 'PENDING' THEN 'order.created' ELSE 'order.' || lower(n.status) END,
        n.item_id, n.id, n.user_id, n.status, n.trace, n.quantity
    FROM new_rows n;
    RETURN NULL;
END $$;
-- +goose StatementEnd

-- What is written behind an event that is put off is put off with it: whoever claims would walk over it in vain again and again. This can just miss.
--
--	order                        keeper
--	looks at its first event
--	                             puts that off; what follows is not committed, and stays in the queue of the fresh
--	commits
--
-- Such a row is walked over until the first one fails again, which puts it off, too. There is one per transaction of that moment. The other way round,
-- the first one may be told before the commit: it was due then, and so is what has its time.
--
-- The plan is made once per connection, when there may be one order and no event, and kept for when there are thousands: orders are joined by no
-- nested loop, and each is looked up in the index of the keys. That look-up is a nested loop all the same, which makes the plan seem so dear that it
-- would be compiled, for a second, at every call.
-- +goose StatementBegin
CREATE FUNCTION flash_sale_order_updated() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT
    SET enable_nestloop = off SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off SET jit = off AS $$
BEGIN
    INSERT INTO flash_sale_event (key, type, item_id, order_id, user_id, status, trace, quantity, attempts, retry_at)
    SELECT n.id::text, n.type, n.item_id, n.id, n.user_id, n.status, n.trace, n.quantity, coalesce(f.attempts, 0), f.retry_at
    FROM (
        SELECT n.*, 'order.' || lower(n.status) AS type FROM old_rows o JOIN new_rows n ON n.id = o.id WHERE n.status <> o.status
        UNION ALL
        SELECT n.*, 'order.refund_due' FROM old_rows o JOIN new_rows n ON n.id = o.id WHERE n.refunds_due > o.refunds_due
    ) n LEFT JOIN LATERAL (SELECT e.attempts, e.retry_at FROM flash_sale_event e WHERE e.key = n.id::text ORDER BY e.id LIMIT 1) f ON true;
    RETURN NULL;
END $$;
-- +goose StatementEnd

CREATE TRIGGER flash_sale_order_inserted AFTER INSERT ON flash_sale_order
    REFERENCING NEW TABLE AS new_rows FOR EACH STATEMENT EXECUTE FUNCTION flash_sale_order_inserted();

CREATE TRIGGER flash_sale_order_updated AFTER UPDATE ON flash_sale_order
    REFERENCING OLD TABLE AS old_rows NEW TABLE AS new_rows FOR EACH STATEMENT EXECUTE FUNCTION flash_sale_order_updated();
