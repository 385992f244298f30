package main

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"flashgate/internal/ledger"
)

// Set by the linker: -ldflags "-X main.version=v1.2.3 -X main.commit=0123abc". Without, the build information of Go is used.
var (
	version string
	commit  string
)

// versionCommand prints what this binary is.
type versionCommand struct{}

// Run implements the command.
func (versionCommand) Run(std *console) error {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		info = &debug.BuildInfo{}
	}
	name, revision := identify(info)
	_, err := fmt.Fprintf(std.out, "flashgate %s\ncommit    %s\ngo        %s %s/%s\nschema    %d\n",
		name, revision, runtime.Version(), runtime.GOOS, runtime.GOARCH, ledger.SchemaVersion)
	return err
}

// identify returns version and commit.
func identify(info *debug.BuildInfo) (name, revision string) {
	name, revision = version, commit
	if name == "" {
		name = info.Main.Version
	}
	if name == "" {
		name = "(devel)"
	}
	if revision == "" {
		modified := ""
		for _, setting := range info.Settings {
			switch {
			case setting.Key == "vcs.revision":
				revision = setting.Value
			case setting.Key == "vcs.modified" && setting.Value == "true":
				modified = " (modified)"
			}
		}
		if revision != "" {
			revision += modified
		}
	}
	if revision == "" {
		revision = "unknown"
	}
	return name, revision
}
