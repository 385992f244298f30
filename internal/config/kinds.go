package config

import (
	"fmt"
	"net/url"
	"os"
	"reflect"
	"strconv"
	"strings"
	"time"

	"github.com/alecthomas/kong"

	"flashgate/limiter"
)

// kind is a kind of value: how its text is read and how help and messages speak of it. It is kong's mapper for fields with its name as type.
type kind struct {
	placeholder string
	hidden      bool // the text may hold a secret: no message repeats it
	url         bool // of a URL, a message repeats only one that cannot hold a secret
	parse       func(text string, tag *kong.Tag) (any, error)
}

// kinds are the values of the tag "type".
var kinds = map[string]kind{
	"address":   {placeholder: "HOST:PORT", parse: parseAddress},
	"brokers":   {placeholder: "HOST:PORT,…", parse: parseBrokers},
	"count":     {placeholder: "N", parse: parseCount},
	"duration":  {placeholder: "DURATION", parse: parseDuration},
	"file":      {placeholder: "FILE", parse: parseFile},
	"header":    {placeholder: "NAME", parse: parseHeader},
	"hmac-key":  {placeholder: "KEY", hidden: true, parse: parseHMACKey},
	"http-url":  {placeholder: "URL", url: true, parse: parseHTTPURL},
	"keys-url":  {placeholder: "URL", url: true, parse: parseKeysURL},
	"mechanism": {placeholder: "NAME", parse: parseMechanism},
	"member-id": {placeholder: "NAME", parse: parseMemberID},
	"networks":  {placeholder: "CIDR,…", parse: parseNetworks},
	"origins":   {placeholder: "ORIGIN,…", parse: parseOrigins},
	"postgres":  {placeholder: "DSN", hidden: true, parse: parsePostgres},
	"rate":      {placeholder: "RATE", parse: parseRate},
	"redis":     {placeholder: "URL", hidden: true, parse: parseRedis},
	"secret":    {placeholder: "SECRET", hidden: true, parse: parseSecret},
	"switch":    {placeholder: "on|off", parse: parseSwitch},
	"text":      {placeholder: "TEXT", parse: parseText},
	"token":     {placeholder: "TOKEN", hidden: true, parse: parseToken},
}

var _ interface {
	kong.Mapper
	kong.PlaceHolderProvider
} = kind{}

// Decode implements kong.Mapper. Its errors are of type *Error, under the name of the flag.
func (k kind) Decode(ctx *kong.DecodeContext, target reflect.Value) error {
	var text string
	if err := ctx.Scan.PopValueInto("value", &text); err != nil {
		return err
	}
	value, err := k.parse(text, ctx.Value.Tag)
	if err != nil {
		setting := &Error{Name: "--" + ctx.Value.Name, Problem: err.Error()}
		if ctx.Value.Flag == nil {
			setting.Name = "<" + ctx.Value.Name + ">"
		}
		if !k.hides(text) {
			setting.Value = text
		}
		return setting
	}
	if target.Kind() == reflect.Pointer { // of a flag that may be missing
		target.Set(reflect.New(target.Type().Elem()))
		target = target.Elem()
	}
	target.Set(reflect.ValueOf(value).Convert(target.Type()))
	return nil
}

// hides reports whether text may hold a secret, whether or not it is what it should be: a password stands in front of an @, also where nobody expects
// one, a token in a query, and in what is no URL at all they stand anywhere.
func (k kind) hides(text string) bool {
	if k.hidden || strings.Contains(text, "@") {
		return true
	}
	if !k.url {
		return false
	}
	if !strings.Contains(text, "://") {
		text = "http://" + text // HOST:PORT, where a URL should be, is none of them
	}
	u, err := url.Parse(text)
	return err != nil || u.Opaque != "" || u.RawQuery != "" || u.Fragment != ""
}

// PlaceHolder implements kong.PlaceHolderProvider.
func (k kind) PlaceHolder(*kong.Flag) string { return k.placeholder }

// switchKind lets a flag of kind switch stand without a value.
type switchKind struct{ kind }

// IsBool implements kong.BoolMapper.
func (switchKind) IsBool() bool { return true }

// Decode implements kong.Mapper.
func (s switchKind) Decode(ctx *kong.DecodeContext, target reflect.Value) error {
	if ctx.Scan.Peek().Type != kong.FlagValueToken {
		target.SetBool(true)
		return nil
	}
	// kong hands a bool over where a --no-flag was given.
	if on, ok := ctx.Scan.Peek().Value.(bool); ok {
		ctx.Scan.Pop()
		target.SetBool(on)
		return nil
	}
	return s.kind.Decode(ctx, target)
}

func parseSwitch(text string, _ *kong.Tag) (any, error) {
	switch strings.ToLower(text) {
	case "on", "true", "yes", "1":
		return true, nil
	case "off", "false", "no", "0":
		return false, nil
	}
	return nil, fmt.Errorf("must be on or off")
}

func parseDuration(text string, tag *kong.Tag) (any, error) {
	least, most := durationTag(tag, "min"), durationTag(tag, "max")
	orOff := ""
	if tag.Has("off") { // what is done every so often, or never: 0
		if text == "off" {
			return time.Duration(0), nil
		}
		orOff = ", or off"
	}
	d, err := time.ParseDuration(text)
	if err != nil || d < least || d > most {
		return nil, fmt.Errorf("must be a duration with unit, such as 500ms, 3s or 5m, from %s to %s%s", tag.Get("min"), tag.Get("max"), orOff)
	}
	return d, nil
}

func durationTag(tag *kong.Tag, key string) time.Duration {
	d, err := time.ParseDuration(tag.Get(key))
	if err != nil {
		panic("config: a field of kind duration needs the tag " + key) // a mistake in groups.go
	}
	return d
}

func parseCount(text string, tag *kong.Tag) (any, error) {
	least, most := countTag(tag, "min"), countTag(tag, "max")
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < least || n > most || strings.Trim(text, "0123456789") != "" {
		return nil, fmt.Errorf("must be a whole number from %d to %d", least, most)
	}
	return n, nil
}

func countTag(tag *kong.Tag, key string) int64 {
	n, err := strconv.ParseInt(tag.Get(key), 10, 64)
	if err != nil {
		panic("config: a field of kind count needs the tag " + key) // a mistake in groups.go
	}
	return n
}

func parseRate(text string, _ *kong.Tag) (any, error) {
	rate, err := limiter.ParseRate(text)
	if err != nil {
		return nil, fmt.Errorf("must be EVENTS/UNIT:BURST, such as 5/s:10, with the unit s, m or h and numbers from 1 to %d, or off", limiter.MaxEvents)
	}
	return rate, nil
}

func parseNetworks(text string, _ *kong.Tag) (any, error) {
	networks, err := limiter.ParsePrefixes(text)
	if err != nil {
		return nil, fmt.Errorf("must be a comma list of networks, such as 10.0.0.0/8,2001:db8::/32: %w", err)
	}
	return networks, nil
}

func parseHeader(text string, _ *kong.Tag) (any, error) {
	if err := (limiter.ResolverConfig{Header: text}).WithDefaults().Validate(); err != nil {
		return nil, err
	}
	return text, nil
}

func parseFile(text string, _ *kong.Tag) (any, error) {
	file, err := os.Open(text) //nolint:gosec // G304: the operator names the file
	if err != nil {
		return nil, fmt.Errorf("cannot be read: %w", withoutPath(err))
	}
	return text, file.Close()
}
