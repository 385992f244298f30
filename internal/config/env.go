package config

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
)

const (
	// Prefix begins the name of every variable of flashgate.
	Prefix = "FLASHGATE_"
	// FileSuffix ends the name of a variable that names a file with the value.
	FileSuffix = "_FILE"
	// maxFileBytes bounds such a file. The largest sensible value is a list of networks; a path like /dev/zero must not fill the memory.
	maxFileBytes = 1 << 20
)

// Env is the environment of the process as flashgate reads it. It is immutable and safe for concurrent use.
type Env struct {
	values map[string]string // variables with the prefix that are not empty
}

// NewEnv reads environ, entries of the form NAME=VALUE as os.Environ gives them. An empty value counts as unset. Of two entries with one name
// the first counts, as it does for the rest of the program.
func NewEnv(environ []string) *Env {
	e := &Env{values: make(map[string]string)}
	seen := make(map[string]bool)
	for _, entry := range environ {
		name, value, ok := strings.Cut(entry, "=")
		if !ok || !strings.HasPrefix(name, Prefix) || seen[name] {
			continue
		}
		seen[name] = true
		if value != "" {
			e.values[name] = value
		}
	}
	return e
}

// Lookup returns the value of the variable name, from the environment or from the file that name_FILE names, one line break at its end
// removed. An empty value and ok false: it is not set. Errors are of type *Error.
func (e *Env) Lookup(name string) (value string, ok bool, err error) {
	value, ok = e.values[name]
	path, fromFile := e.values[name+FileSuffix]
	switch {
	case ok && fromFile:
		return "", false, &Error{Name: name, Problem: "is set, and so is " + name + FileSuffix + "; only one of them may be"}
	case !fromFile:
		return value, ok, nil
	}
	value, err = readValue(path)
	if err != nil {
		return "", false, &Error{Name: name + FileSuffix, Value: path, Problem: err.Error()}
	}
	return value, true, nil
}

func readValue(path string) (string, error) {
	file, err := os.Open(path) //nolint:gosec // G304: the operator names the file
	if err != nil {
		return "", fmt.Errorf("cannot be read: %w", withoutPath(err))
	}
	defer func() { _ = file.Close() }()
	data, err := io.ReadAll(io.LimitReader(file, maxFileBytes+1))
	switch {
	case err != nil:
		return "", fmt.Errorf("cannot be read: %w", withoutPath(err))
	case len(data) > maxFileBytes:
		return "", fmt.Errorf("the file is larger than %d bytes", maxFileBytes)
	}
	value := strings.TrimSuffix(strings.TrimSuffix(string(data), "\n"), "\r")
	if value == "" {
		// An empty variable is a way to unset it. A file was named on purpose: empty, it is a secret that was not mounted.
		return "", errors.New("the file is empty")
	}
	return value, nil
}

// withoutPath drops what a path error repeats: the message names the path already.
func withoutPath(err error) error {
	var pathErr *os.PathError
	if errors.As(err, &pathErr) {
		return pathErr.Err
	}
	return err
}

// CheckNames returns an *Error for a variable with the prefix that is none of known, nor one of them with _FILE. Variables that Kubernetes sets
// for a service named flashgate are left alone.
func (e *Env) CheckNames(known []string) error {
	names := make(map[string]bool, 2*len(known))
	for _, name := range known {
		names[name], names[name+FileSuffix] = true, true
	}
	var unknown []string
	for name := range e.values {
		if !names[name] && !strings.HasPrefix(name, Prefix+"SERVICE_") && !strings.HasPrefix(name, Prefix+"PORT") {
			unknown = append(unknown, name)
		}
	}
	if len(unknown) == 0 {
		return nil
	}
	slices.Sort(unknown)
	problem := "is not a setting of flashgate"
	switch meant := closest(unknown[0], known); {
	case meant != "":
		problem += "; did you mean " + meant + "?"
	case looksLikeServiceLink(unknown[0]):
		problem += "; it looks like a Kubernetes service link: set enableServiceLinks to false"
	}
	if more := len(unknown) - 1; more > 0 {
		problem += fmt.Sprintf(" (and %d more: %s)", more, strings.Join(unknown[1:], ", "))
	}
	return &Error{Name: unknown[0], Problem: problem}
}

// looksLikeServiceLink recognises what Kubernetes sets for services whose name only begins with "flashgate".
func looksLikeServiceLink(name string) bool {
	return strings.Contains(name, "_SERVICE_HOST") || strings.Contains(name, "_SERVICE_PORT") || strings.Contains(name, "_PORT_")
}
