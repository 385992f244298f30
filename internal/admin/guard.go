package admin

import (
	"errors"
	"log/slog"
	"runtime/debug"

	"flashgate/internal/panics"
)

var errPanic = errors.New("a fault of the program; the log has it")

// guard runs what a goroutine of its own does. A panic in it, which would be a fault of the program at one item, is logged and becomes an error: the
// process goes on selling.
func (a *API) guard(what string, work func() error) (err error) {
	defer func() {
		if fault := recover(); fault != nil {
			a.cfg.Logger.Error("admin: caught a panic", "in", what, "panic", panics.Text(fault), "stack", string(debug.Stack()))
			err = errPanic
		}
	}()
	return work()
}

// because is the attribute of a log line that has an error, and none where there is no error.
func because(err error) slog.Attr {
	if err == nil {
		return slog.Attr{}
	}
	return slog.Any("error", err)
}
