package devstack

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
)

// ownDescriptors is where Linux shows every process its open files, as links that lead
// to the open file itself and not to its path.
const ownDescriptors = "/proc/self/fd"

// entrance is an open directory, by which a server gets into it whose user cannot reach
// it by its path: one in a checkout below /root, or in what mktemp -d has made for root.
// The directory itself is the user's own.
//
// The server inherits the directory as a descriptor and is told a path that begins with
// that descriptor. The kernel starts at the directory then, and never looks at those
// above. PostgreSQL hands the descriptor on to all its processes, works inside its data
// directory, and uses other paths only for what lies below that one.
//
// The server gains no privilege by this. The capability to search every directory
// (CAP_DAC_READ_SEARCH) would do as well, but would let it read every file of the
// machine, and root itself does not have it in most containers. What the server does
// gain is the way up from its directory as far as the closed one: what lies between, and
// is open to everybody by its mode, it can read. So an entrance is only opened where
// there is no other way. The working directory alone is no way: PostgreSQL makes every
// path absolute, and 15 goes back by path to where it was started.
type entrance struct {
	dir         *os.File
	descriptors string // ownDescriptors, except in tests
}

// openEntrance opens dir, and checks that descriptors leads back to it: it does not
// where the system has no such thing, or has not mounted it.
func openEntrance(dir, descriptors string) (*entrance, error) {
	opened, err := os.Open(dir)
	if err != nil {
		return nil, fmt.Errorf("open a way into the directory: %w", err)
	}
	e := &entrance{dir: opened, descriptors: descriptors}
	if err := e.check(); err != nil {
		return nil, errors.Join(fmt.Errorf("open a way into the directory: %w", err), e.close())
	}
	return e, nil
}

// check follows the link as the server will.
func (e *entrance) check() error {
	link := filepath.Join(e.descriptors, strconv.Itoa(int(e.dir.Fd())))
	want, err := e.dir.Stat()
	if err != nil {
		return err
	}
	got, err := os.Stat(link)
	if err != nil {
		return err
	}
	if !os.SameFile(want, got) {
		return fmt.Errorf("%s leads elsewhere", link)
	}
	return nil
}

// file is the path of a file in the directory, for a process that was admitted.
func (e *entrance) file(name string) string {
	return filepath.Join(e.descriptors, strconv.Itoa(firstInherited), name)
}

// admit has a command inherit the directory, and start outside of it: it could not go
// there by path.
func (e *entrance) admit(c *command) {
	c.inherits = []*os.File{e.dir}
	c.dir = "/"
}

func (e *entrance) close() error { return e.dir.Close() }
