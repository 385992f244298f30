package config

import (
	"errors"
	"reflect"

	"github.com/alecthomas/kong"
)

// Options returns the kong options with which the flags of a command take their values from env: first the command line counts, then the
// variable, then the default. kong itself never looks at the environment, because its messages would show secrets.
//
// Commands that use no variable, and the help of all others, do not care what the environment says.
func Options(env *Env) []kong.Option {
	r := &resolver{env: env, names: make(map[*kong.Flag]string), known: Names()}
	options := []kong.Option{
		defaults,
		kong.ValueFormatter(describe),
		kong.PostBuild(r.takeOver),
		kong.WithBeforeResolve(r.checkNames),
		kong.Resolvers(r),
	}
	for name, k := range kinds {
		var mapper kong.Mapper = k
		if name == "switch" {
			mapper = switchKind{k}
		}
		options = append(options, kong.NamedMapper(name, mapper))
	}
	return options
}

// defaults are the defaults that differ between commands: a command sets its own with kong's tag "set".
var defaults = kong.Vars{
	"admin_listen":    "127.0.0.1:9090",
	"admin_token":     "",
	"jwt_secret":      "",
	"payment_secret":  "",
	"trusted_proxies": "",
	"known_secrets":   "refused", // "allowed" for the command that has them as defaults
}

// resolver gives kong the values of variables.
type resolver struct {
	env   *Env
	names map[*kong.Flag]string // the variable of a flag
	known []string
}

var _ kong.Resolver = (*resolver)(nil)

// takeOver notes which flag has which variable, and makes kong forget it.
func (r *resolver) takeOver(k *kong.Kong) error {
	var walk func(node *kong.Node)
	walk = func(node *kong.Node) {
		for _, flag := range node.Flags {
			if len(flag.Tag.Envs) > 0 {
				r.names[flag] = flag.Tag.Envs[0]
				r.known = append(r.known, flag.Tag.Envs[0])
			}
			flag.Envs, flag.Tag.Envs = nil, nil
		}
		for _, child := range node.Children {
			walk(child)
		}
	}
	walk(k.Model.Node)
	return nil
}

// checkNames refuses unknown variables. It runs before the first variable is read.
func (r *resolver) checkNames(ctx *kong.Context) error {
	for _, flag := range ctx.Flags() {
		if _, ok := r.names[flag]; ok {
			return r.env.CheckNames(r.known)
		}
	}
	return nil
}

// Validate implements kong.Resolver.
func (r *resolver) Validate(*kong.Application) error { return nil }

// Resolve implements kong.Resolver. It reads the value once before kong does, only for the sake of the error: that must name the variable, not
// the flag.
func (r *resolver) Resolve(_ *kong.Context, _ *kong.Path, flag *kong.Flag) (any, error) {
	name, ok := r.names[flag]
	if !ok {
		return nil, nil //nolint:nilnil // kong's way to say "no value"
	}
	text, ok, err := r.env.Lookup(name)
	if err != nil || !ok {
		return nil, err
	}
	scan := kong.ScanFromTokens(kong.Token{Type: kong.FlagValueToken, Value: text})
	err = flag.Mapper.Decode(&kong.DecodeContext{Value: flag.Value, Scan: scan}, reflect.New(flag.Target.Type()).Elem())
	var setting *Error
	if errors.As(err, &setting) {
		setting.Name = name
		return nil, setting
	}
	if err != nil {
		return nil, &Error{Name: name, Value: text, Problem: err.Error()}
	}
	return text, nil
}
