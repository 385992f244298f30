package config

import (
	"strings"

	"github.com/alecthomas/kong"
)

// describe makes the help text of a flag or an argument: what it is for, its limits, its default, its variable.
func describe(value *kong.Value) string {
	parts := []string{strings.TrimSuffix(value.Help, ".")}
	if least := value.Tag.Get("min"); least != "" {
		parts[0] += ", " + least + " to " + value.Tag.Get("max")
	}
	switch absent := value.Tag.Get("none"); {
	case value.Default != "":
		parts = append(parts, "Default "+value.Default)
	case absent != "":
		parts = append(parts, "Default "+absent)
	}
	if name := value.Tag.Get("env"); name != "" {
		parts = append(parts, "$"+name)
	}
	return strings.Join(parts, ". ")
}
