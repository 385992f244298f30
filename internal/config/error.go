package config

import (
	"errors"
	"strconv"
)

// Error says what is wrong with one setting.
type Error struct {
	Name    string // the variable, or the flag with its dashes
	Value   string // as given; empty when it is not to be shown
	Problem string // what is wrong, with the limit that is broken
}

// Error implements error: one line with the name, the value unless it may be a secret, and the problem.
func (e *Error) Error() string {
	text := e.Name
	if e.Value != "" {
		text += "=" + shorten(e.Value)
	}
	return text + ": " + e.Problem
}

// shorten quotes a value for a message. A value of a thousand characters would hide what the message has to say.
func shorten(value string) string {
	const most = 80
	if len(value) > most {
		return strconv.QuoteToASCII(value[:most]) + "…"
	}
	return strconv.QuoteToASCII(value)
}

// Message returns the text of err for the user: kong wraps an error of this package into words about flags that the user may never have
// typed.
func Message(err error) string {
	var setting *Error
	if errors.As(err, &setting) {
		return setting.Error()
	}
	return err.Error()
}
