package main

import "log/slog"

// newLogger writes what happens, for people and for collectors of logs.
func newLogger(std *console) *slog.Logger {
	return slog.New(slog.NewTextHandler(std.err, nil))
}
