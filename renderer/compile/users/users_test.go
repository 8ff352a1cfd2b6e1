package users

import (
	"strings"
	"testing"

	"github.com/berth-hpc/berth/renderer/site"
)

func TestFiles(t *testing.T) {
	s := &site.Site{
		Groups: map[string]site.Group{"lattice": {GID: 5001}, "staff": {GID: 5000}},
		Users: map[string]site.User{
			"researcher": {UID: 2002, GID: 5000, Shell: "/bin/zsh", FullName: "Role for tests", Groups: []string{"lattice"}},
			"student":    {UID: 2001, GID: 2001, Shell: "/bin/bash", Groups: []string{"lattice"}, Keys: []string{"ssh-ed25519 AAA a", "ssh-ed25519 BBB b"}},
		},
	}
	files, err := Build(s)
	if err != nil {
		t.Fatal(err)
	}
	const passwd = "student:x:2001:2001::/home/student:/bin/bash\nresearcher:x:2002:5000:Role for tests:/home/researcher:/bin/zsh\n"
	if files.Passwd != passwd {
		t.Errorf("passwd:\n%swant:\n%s", files.Passwd, passwd)
	}
	// The student has a group of the student's own; the researcher's primary group is a declared one.
	const group = "student:x:2001:\nstaff:x:5000:\nlattice:x:5001:researcher,student\n"
	if files.Group != group {
		t.Errorf("group:\n%swant:\n%s", files.Group, group)
	}
	if len(files.Keys) != 1 || files.Keys["student"] != "ssh-ed25519 AAA a\nssh-ed25519 BBB b\n" {
		t.Errorf("keys: %q", files.Keys)
	}
}

func TestWhatWouldBreakALineIsRefused(t *testing.T) {
	for want, s := range map[string]*site.Site{
		`users.a.shell: "/bin/sh\nroot:x:0:0::/:/bin/sh"`: {Users: map[string]site.User{"a": {UID: 2001, GID: 2001, Shell: "/bin/sh\nroot:x:0:0::/:/bin/sh"}}},
		`users.a.fullName: "A:B"`:                         {Users: map[string]site.User{"a": {UID: 2001, GID: 2001, FullName: "A:B"}}},
		`users.a.keys[0]: a key is one line`:              {Users: map[string]site.User{"a": {UID: 2001, GID: 2001, Keys: []string{"k\nk"}}}},
		`users.b.uid: 2001 is also the uid of a`:          {Users: map[string]site.User{"a": {UID: 2001, GID: 2001}, "b": {UID: 2001, GID: 2002}}},
		`groups.b.gid: 5000 is also the gid of group a`:   {Groups: map[string]site.Group{"a": {GID: 5000}, "b": {GID: 5000}}},
		`users.a.groups[0]: group "none"`:                 {Users: map[string]site.User{"a": {UID: 2001, GID: 2001, Groups: []string{"none"}}}},
		`users.a.gid: no group has gid 2001`:              {Users: map[string]site.User{"a": {UID: 2001, GID: 2001}}, Groups: map[string]site.Group{"a": {GID: 5000}}},
	} {
		if _, err := Build(s); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("error %v, want %q…", err, want)
		}
	}
}
