package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5/pgconn"

	"flashgate/internal/broker"
)

// The settings that say how servers are reached.
const (
	databaseSetting = "FLASHGATE_DATABASE_URL"
	redisSetting    = "FLASHGATE_REDIS_URL"
)

// blame puts a setting in front of what went wrong with the server that it names, so that whoever reads it knows where to look.
func blame(setting string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", setting, err)
}

// blameKafka is blame for the setting of Kafka that an error speaks against.
func blameKafka(err error) error {
	switch broker.FaultOf(err) {
	case broker.FaultTLS:
		return blame("FLASHGATE_KAFKA_TLS", err)
	case broker.FaultSASL:
		return blame("FLASHGATE_KAFKA_SASL_MECHANISM, _USER or _PASSWORD", err)
	case broker.FaultBrokers:
		return blame("FLASHGATE_KAFKA_BROKERS", err)
	}
	return err
}

// insufficientPrivilege is the SQLSTATE of a statement that its user may not run.
const insufficientPrivilege = "42501"

// blameConnection is blame for an error that may as well come from a statement.
func blameConnection(err error) error {
	if errors.As(err, new(*pgconn.ConnectError)) {
		return blame(databaseSetting, err)
	}
	if refused := (*pgconn.PgError)(nil); errors.As(err, &refused) && refused.Code == insufficientPrivilege {
		return blame(databaseSetting+": its user lacks a right", err)
	}
	return err
}

// blaming makes a check name the setting.
func blaming(blame func(error) error, check func(context.Context) error) func(context.Context) error {
	return func(ctx context.Context) error { return blame(check(ctx)) }
}
