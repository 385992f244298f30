-- +goose Up

-- Ids that nobody chose. MAXVALUE is the largest integer that JavaScript and Lua keep exactly.
CREATE SEQUENCE flash_sale_id_seq AS bigint MAXVALUE 9007199254740991;
CREATE SEQUENCE flash_sale_item_id_seq AS bigint MAXVALUE 9007199254740991;

CREATE TABLE flash_sale (
    id             bigint PRIMARY KEY CHECK (id BETWEEN 1 AND 9007199254740991),
    name           text NOT NULL,
    starts_at      timestamptz NOT NULL, -- inclusive
    ends_at        timestamptz NOT NULL, -- exclusive
    paused         boolean NOT NULL DEFAULT false,
    purchase_limit text NOT NULL CHECK (purchase_limit IN ('per_item', 'per_sale')),
    payment_window interval NOT NULL CHECK (payment_window > interval '0'),
    time_zone      text NOT NULL DEFAULT 'UTC', -- decides the dates of lots, nothing else
    created_at     timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT chk_sale_window CHECK (starts_at < ends_at)
);

-- The row of an item is updated by every batch of its orders: room on the page keeps these updates out of the indexes.
CREATE TABLE flash_sale_item (
    id              bigint PRIMARY KEY CHECK (id BETWEEN 1 AND 9007199254740991),
    sale_id         bigint NOT NULL REFERENCES flash_sale,
    product_id      bigint NOT NULL DEFAULT 0,
    sku             text NOT NULL DEFAULT '',
    quantity        bigint NOT NULL CHECK (quantity BETWEEN 0 AND 9007199254740991), -- initial stock and restocks
    sold            bigint NOT NULL DEFAULT 0 CHECK (sold >= 0),                     -- units of live orders
    -- The scale is kept: 1980 stays 1980, 19.80 stays 19.80. NaN is not below 1e14.
    price           numeric NOT NULL CHECK (price >= 0 AND price < 1e14 AND scale(price) <= 4),
    currency        text NOT NULL CHECK (currency ~ '^[A-Z]{3}$'),
    shards          integer NOT NULL CHECK (shards BETWEEN 1 AND 256),
    max_per_user    bigint NOT NULL DEFAULT 1 CHECK (max_per_user BETWEEN 1 AND 9007199254740991),
    stock_model     text NOT NULL DEFAULT 'counter',
    limit_key       text NOT NULL, -- what its orders get: item:N, or sale:S
    epoch           bigint NOT NULL DEFAULT 0, -- of the last load; 0: never loaded
    claim           bigint NOT NULL DEFAULT 0, -- the newest claim to load
    lease_until     timestamptz,               -- of the loader with that claim; only saves double work
    load_due_at     timestamptz,               -- since when the ledger knows that the stock in Redis is wrong
    load_due_reason text,
    paused          boolean NOT NULL DEFAULT false,
    retired_at      timestamptz,
    created_at      timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT chk_not_oversold CHECK (sold <= quantity),
    CONSTRAINT chk_item_epoch CHECK (epoch BETWEEN 0 AND claim)
) WITH (fillfactor = 50);

CREATE INDEX ix_flash_sale_item_sale ON flash_sale_item (sale_id, id);

-- Every change that people make: when, what, before and after.
CREATE TABLE flash_sale_audit (
    id        bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    -- Made by the process before its first attempt: tells after a lost reply whether the change happened.
    change_id uuid NOT NULL UNIQUE,
    at        timestamptz NOT NULL DEFAULT now(),
    what      text NOT NULL,
    subject   text NOT NULL, -- sale:S or item:N
    before    jsonb,
    after     jsonb
);

CREATE INDEX ix_flash_sale_audit_subject ON flash_sale_audit (subject, id);

-- Restocks with an idempotency key: each happens once.
CREATE TABLE flash_sale_restock (
    item_id         bigint NOT NULL REFERENCES flash_sale_item,
    idempotency_key text NOT NULL,
    units           bigint NOT NULL CHECK (units > 0),
    quantity        bigint NOT NULL, -- of the item afterwards
    operation_id    uuid NOT NULL,
    correction_id   bigint NOT NULL,
    created_at      timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (item_id, idempotency_key)
);

-- Who does what no two processes need to do at once. Only saves double work.
CREATE TABLE flash_sale_lease (
    name       text PRIMARY KEY,
    holder     text NOT NULL,
    held_until timestamptz NOT NULL
);
