package devstack

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"syscall"
)

// account is an unprivileged user that a server runs as; nil stands for ourselves.
type account struct {
	name string
	uid  int
	gid  int
}

// unprivileged finds who runs a server that refuses to run as root: nobody else than
// ourselves, unless we are root.
func unprivileged() (*account, error) {
	if os.Geteuid() != 0 {
		return nil, nil //nolint:nilnil // nil is an account: our own
	}
	for _, name := range []string{"postgres", "nobody"} {
		u, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, uidErr := strconv.Atoi(u.Uid)
		gid, gidErr := strconv.Atoi(u.Gid)
		if uidErr == nil && gidErr == nil && uid != 0 {
			return &account{name: name, uid: uid, gid: gid}, nil
		}
	}
	return nil, errors.New("find an unprivileged user: there is neither postgres nor nobody")
}

// credential is what the kernel needs to start a process as this user.
func (a *account) credential() *syscall.Credential {
	if a == nil {
		return nil
	}
	return &syscall.Credential{Uid: uint32(a.uid), Gid: uint32(a.gid)}
}

// own gives a file or directory to the user.
func (a *account) own(path string) error {
	if a == nil {
		return nil
	}
	return os.Chown(path, a.uid, a.gid)
}

// mayEnter checks that the user can reach dir, whose path has no links: every directory
// above it must let him pass. A home directory such as /root does not, which the server
// itself would report in a way that sends people looking in the wrong place. A refusal
// is fs.ErrPermission.
func (a *account) mayEnter(dir string) error {
	if a == nil {
		return nil
	}
	for up := filepath.Dir(dir); ; up = filepath.Dir(up) {
		info, err := os.Stat(up)
		if err != nil {
			return err
		}
		if !a.passes(info) {
			return fmt.Errorf("user %s, who runs it because we are root, may not enter %s (%v): %w; choose a directory elsewhere, such as below /var/lib", a.name, up, info.Mode(), fs.ErrPermission)
		}
		if up == filepath.Dir(up) {
			return nil
		}
	}
}

func (a *account) passes(info fs.FileInfo) bool {
	owner, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return true
	}
	switch {
	case int(owner.Uid) == a.uid:
		return info.Mode()&0o100 != 0
	case int(owner.Gid) == a.gid:
		return info.Mode()&0o010 != 0
	default:
		return info.Mode()&0o001 != 0
	}
}
