// Package config reads the settings of flashgate from flags and environment variables, strictly: a misspelt variable, a value outside its
// limits or two settings that contradict each other stop the start with one line that names the variable.
//
// The settings come in groups, structs that a command of package main embeds; the tags of their fields are those of kong
// (github.com/alecthomas/kong) and a few of this package:
//
//	env      the variable; its name with _FILE names a file that holds the value
//	type     the kind of value, see kinds
//	min, max the limits of a duration or a count, both allowed values
//	none     what happens without a value, for the help text
//
// A command sees only what is wrong with its own variables. The names of all are known to every command, so that one environment serves all
// roles and a typo is found by each.
//
// # Reading guide
//
//	groups.go   the settings, with names, defaults and limits
//	check.go    what must hold between settings
//	env.go      the environment: empty values, files, unknown names
//	resolve.go  how kong gets its values from there
//	kinds.go    kinds of values: how the text is read
//	secret.go   values that no log may show
//	help.go     the help text of a flag
package config
