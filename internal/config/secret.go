package config

import "log/slog"

// Secret is a value that must not reach a log, an error message or a dump by accident: however it is printed, it says "[hidden]".
type Secret string

// Reveal returns the value itself.
func (s Secret) Reveal() string { return string(s) }

// IsSet reports whether there is a value.
func (s Secret) IsSet() bool { return s != "" }

// String implements fmt.Stringer without giving the value away. An empty secret is an empty string, so that "not set" can be told from "set".
func (s Secret) String() string {
	if s == "" {
		return ""
	}
	return "[hidden]"
}

// GoString implements fmt.GoStringer likewise.
func (s Secret) GoString() string { return `"` + s.String() + `"` }

// LogValue implements slog.LogValuer likewise.
func (s Secret) LogValue() slog.Value { return slog.StringValue(s.String()) }

// MarshalText implements encoding.TextMarshaler likewise.
func (s Secret) MarshalText() ([]byte, error) { return []byte(s.String()), nil }
