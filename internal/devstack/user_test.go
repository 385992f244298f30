package devstack

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

func TestUnprivilegedIsNeverRoot(t *testing.T) {
	t.Parallel()
	a, err := unprivileged()
	if err != nil {
		t.Fatal(err)
	}
	if os.Geteuid() != 0 {
		if a != nil || a.credential() != nil {
			t.Errorf("not root, and yet %+v is asked to run the server", a)
		}
		return
	}
	if a == nil || a.uid == 0 || a.credential().Uid == 0 {
		t.Errorf("as root %+v runs the server", a)
	}
}

func TestOrdinaryUserKeepsHisFiles(t *testing.T) {
	t.Parallel()
	var self *account
	dir := t.TempDir() // closed to everybody but its owner
	if err := self.mayEnter(dir); err != nil {
		t.Error(err)
	}
	if err := self.own(dir); err != nil {
		t.Error(err)
	}
	if self.credential() != nil {
		t.Error("a credential for ourselves")
	}
}

func TestMayEnterLooksAtEveryParent(t *testing.T) {
	t.Parallel()
	base := OpenTempDir(t)
	middle := filepath.Join(base, "middle")
	dir := filepath.Join(middle, "dir")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(base)
	if err != nil {
		t.Fatal(err)
	}
	owner := info.Sys().(*syscall.Stat_t)
	uid, gid := int(owner.Uid), int(owner.Gid)
	for _, c := range []struct {
		name   string
		who    account
		mode   os.FileMode // of the directory in the middle
		passes bool
	}{
		{"owner", account{uid: uid, gid: gid + 1}, 0o700, true},
		{"owner locked out", account{uid: uid, gid: gid}, 0o077, false},
		{"group", account{uid: uid + 1, gid: gid}, 0o710, true},
		{"group locked out", account{uid: uid + 1, gid: gid}, 0o701, false},
		{"others", account{uid: uid + 1, gid: gid + 1}, 0o701, true},
		{"others locked out", account{uid: uid + 1, gid: gid + 1}, 0o770, false},
	} {
		if err := os.Chmod(base, 0o711); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(middle, c.mode); err != nil {
			t.Fatal(err)
		}
		c.who.name = "somebody"
		err := c.who.mayEnter(dir)
		if c.passes && err != nil {
			t.Errorf("%s: %v", c.name, err)
		}
		if !c.passes && (err == nil || !strings.Contains(err.Error(), "may not enter "+middle)) {
			t.Errorf("%s: the error is %v", c.name, err)
		}
	}
	if err := os.Chmod(middle, 0o700); err != nil {
		t.Fatal(err)
	}
}
