package main

import (
	"context"
	"log/slog"
)

// newLogger writes what happens, for people and for collectors of logs.
func newLogger(std *console) *slog.Logger {
	return slog.New(slog.NewTextHandler(std.err, nil))
}

// quiet returns a logger for the Kafka client, which passes errors alone: while a broker is away the client has several warnings for every attempt
// to reach it, and the readiness and the parts that wait for it say so once.
func quiet(logger *slog.Logger) *slog.Logger { return slog.New(errorsOnly{logger.Handler()}) }

type errorsOnly struct{ slog.Handler }

func (h errorsOnly) Enabled(ctx context.Context, level slog.Level) bool {
	return level >= slog.LevelError && h.Handler.Enabled(ctx, level)
}

func (h errorsOnly) WithAttrs(attrs []slog.Attr) slog.Handler {
	return errorsOnly{h.Handler.WithAttrs(attrs)}
}

func (h errorsOnly) WithGroup(name string) slog.Handler {
	return errorsOnly{h.Handler.WithGroup(name)}
}
