// Package users writes a site's users as the passwd, group and authorized_keys texts that every Slurm pod carries. Ids are
// the site's; nothing is invented here.
package users

import (
	"fmt"
	"sort"
	"strings"

	"github.com/berth-hpc/berth/renderer/site"
)

// Files are the texts for libnss-extrausers and for the login's key lookup.
type Files struct {
	Passwd string
	Group  string
	Keys   map[string]string // user name to authorized_keys text; users without keys are left out
}

// Build writes the users' files: lines ordered by id, a group of its own for each primary gid that no declared group has.
// A field that would break a line is an error that names it.
func Build(s *site.Site) (Files, error) {
	if err := check(s); err != nil {
		return Files{}, err
	}
	names := make([]string, 0, len(s.Users))
	for name := range s.Users {
		names = append(names, name)
	}
	sort.Slice(names, func(i, j int) bool {
		a, b := s.Users[names[i]], s.Users[names[j]]
		if a.UID != b.UID {
			return a.UID < b.UID
		}
		return names[i] < names[j]
	})
	var passwd strings.Builder
	keys := map[string]string{}
	for _, name := range names {
		user := s.Users[name]
		fmt.Fprintf(&passwd, "%s:x:%d:%d:%s:/home/%s:%s\n", name, user.UID, user.GID, user.FullName, name, user.Shell)
		if len(user.Keys) > 0 {
			keys[name] = strings.Join(user.Keys, "\n") + "\n"
		}
	}
	group, err := groupFile(s, names)
	if err != nil {
		return Files{}, err
	}
	return Files{Passwd: passwd.String(), Group: group, Keys: keys}, nil
}

type groupEntry struct {
	name    string
	gid     int
	members []string
}

func groupFile(s *site.Site, users []string) (string, error) {
	entries := map[string]*groupEntry{}
	byGID := map[int]string{}
	for name, group := range s.Groups {
		if other, taken := byGID[group.GID]; taken {
			a, b := min(name, other), max(name, other)
			return "", fmt.Errorf("groups.%s.gid: %d is also the gid of group %s; give each group its own", b, group.GID, a)
		}
		entries[name] = &groupEntry{name: name, gid: group.GID}
		byGID[group.GID] = name
	}
	for _, name := range users {
		user := s.Users[name]
		if _, known := byGID[user.GID]; !known {
			// Debian's custom: a user's own group has the user's name.
			if _, taken := entries[name]; taken {
				return "", fmt.Errorf("users.%s.gid: no group has gid %d, and the name %s is a group with another gid; declare the group or change the gid", name, user.GID, name)
			}
			entries[name] = &groupEntry{name: name, gid: user.GID}
			byGID[user.GID] = name
		}
		for i, group := range user.Groups {
			entry, ok := entries[group]
			if !ok {
				return "", fmt.Errorf("users.%s.groups[%d]: group %q is not in groups", name, i, group)
			}
			entry.members = append(entry.members, name)
		}
	}
	list := make([]*groupEntry, 0, len(entries))
	for _, entry := range entries {
		list = append(list, entry)
	}
	sort.Slice(list, func(i, j int) bool { return list[i].gid < list[j].gid })
	var b strings.Builder
	for _, entry := range list {
		sort.Strings(entry.members)
		fmt.Fprintf(&b, "%s:x:%d:%s\n", entry.name, entry.gid, strings.Join(entry.members, ","))
	}
	return b.String(), nil
}

func check(s *site.Site) error {
	names := make([]string, 0, len(s.Users))
	for name := range s.Users {
		names = append(names, name)
	}
	sort.Strings(names)
	byUID := map[int]string{}
	for _, name := range names {
		user := s.Users[name]
		if other, taken := byUID[user.UID]; taken {
			return fmt.Errorf("users.%s.uid: %d is also the uid of %s; give each user its own", name, user.UID, other)
		}
		byUID[user.UID] = name
		for _, field := range []struct{ name, value string }{{"name", name}, {"fullName", user.FullName}, {"shell", user.Shell}} {
			if strings.ContainsAny(field.value, ":\n\r\x00") {
				return fmt.Errorf("users.%s.%s: %q holds a colon or a line end, which would break the line in passwd", name, field.name, field.value)
			}
		}
		for i, key := range user.Keys {
			if strings.ContainsAny(key, "\n\r\x00") {
				return fmt.Errorf("users.%s.keys[%d]: a key is one line; give each key its own entry", name, i)
			}
		}
	}
	return nil
}
