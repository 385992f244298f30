// Package e2e holds the end-to-end tests: they build flashgate with the race detector, run its roles as processes against real servers, and talk
// to them as shoppers, operators and accidents do. It has no code of its own beside its tests.
package e2e
