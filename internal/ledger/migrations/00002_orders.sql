-- +goose Up

CREATE TABLE flash_sale_order (
    id            uuid PRIMARY KEY,
    item_id       bigint NOT NULL REFERENCES flash_sale_item,
    user_id       text NOT NULL CHECK (octet_length(user_id) BETWEEN 1 AND 64),
    quantity      bigint NOT NULL CHECK (quantity BETWEEN 1 AND 9007199254740991),
    -- Live: PENDING, PAID. Ended, for ever: EXPIRED, CANCELLED, REJECTED.
    status        text NOT NULL,
    limit_key     text NOT NULL, -- item:N, or sale:S
    -- As they were when it was bought; the price as it was shown.
    sku           text NOT NULL,
    price         numeric NOT NULL CHECK (price >= 0 AND price < 1e14 AND scale(price) <= 4),
    currency      text NOT NULL,
    -- As the event said.
    shard         integer NOT NULL,
    epoch         bigint NOT NULL,
    key_hash      text NOT NULL DEFAULT '',
    trace         text NOT NULL DEFAULT '',
    reserved_at   timestamptz NOT NULL, -- by the clock of Redis; every other time is this server's
    created_at    timestamptz NOT NULL DEFAULT now(),
    expires_at    timestamptz, -- end of the payment window; null for an order that never was live
    ended_at      timestamptz,
    reject_reason text,
    refund_due    boolean NOT NULL DEFAULT false,
    CONSTRAINT chk_order_expires CHECK (status <> 'PENDING' OR expires_at IS NOT NULL)
);

-- One live order per user and item, or per sale. An order that has ended is in nobody's way.
CREATE UNIQUE INDEX uq_flash_sale_order_live ON flash_sale_order (limit_key, user_id) WHERE status IN ('PENDING', 'PAID');

CREATE INDEX ix_flash_sale_order_user ON flash_sale_order (item_id, user_id);

CREATE INDEX ix_flash_sale_order_due ON flash_sale_order (item_id, expires_at) WHERE status = 'PENDING';

-- What Redis has to be told, written by the transaction that made it true. Deleted when it has been carried out.
CREATE TABLE flash_sale_correction (
    id           bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    item_id      bigint NOT NULL REFERENCES flash_sale_item,
    op           text NOT NULL,
    order_id     uuid,   -- release, void
    user_id      text,   -- release, void: whose home shard holds the mark
    units        bigint NOT NULL,
    operation_id uuid,   -- increase
    epoch        bigint NOT NULL, -- the item's, read under its lock
    created_at   timestamptz NOT NULL DEFAULT now(),
    -- Nobody takes it before: somebody has taken it, or the shard had no stock to correct.
    not_before   timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT chk_correction_op CHECK (CASE op
        WHEN 'increase' THEN operation_id IS NOT NULL AND units > 0
        WHEN 'release' THEN order_id IS NOT NULL AND user_id IS NOT NULL AND units > 0
        WHEN 'void' THEN order_id IS NOT NULL AND user_id IS NOT NULL AND units > 0
        ELSE false END)
);

CREATE INDEX ix_flash_sale_correction_due ON flash_sale_correction (not_before, id);

CREATE INDEX ix_flash_sale_correction_item ON flash_sale_correction (item_id);

-- The same order id with another payload: a fault of whoever made the record. The first one stands.
CREATE TABLE flash_sale_conflict (
    id       bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    order_id uuid NOT NULL,
    payload  jsonb NOT NULL,
    seen_at  timestamptz NOT NULL DEFAULT now(),
    UNIQUE (order_id, payload)
);
