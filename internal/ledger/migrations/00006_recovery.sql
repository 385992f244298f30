-- +goose Up

-- What somebody wishes of the stock that only a load can do: another number of shards, fewer units. The next snapshot carries it out and clears it.
-- The reduction is a difference, so that a restock in between is kept.
ALTER TABLE flash_sale_item
    ADD COLUMN wanted_shards    integer CHECK (wanted_shards BETWEEN 1 AND 256),
    ADD COLUMN wanted_reduction bigint CHECK (wanted_reduction > 0),
    ADD COLUMN wish             bigint NOT NULL DEFAULT 0, -- number of the last wish
    ADD COLUMN wish_refused     bigint NOT NULL DEFAULT 0; -- the last one that a snapshot found to be below what is sold

-- Records of the dead-letter topic that are done with: they were put back into the orders topic. The records themselves stay until their retention
-- time ends. A topic that is made anew has another id.
CREATE TABLE flash_sale_dead_letter (
    topic_id  uuid        NOT NULL,
    partition integer     NOT NULL,
    position  bigint      NOT NULL, -- the offset
    closed_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (topic_id, partition, position)
);
