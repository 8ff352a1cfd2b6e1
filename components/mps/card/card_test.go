package card

import (
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

func deviceDir(t *testing.T, names ...string) string {
	t.Helper()
	dir := t.TempDir()
	for _, name := range names {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestDevices(t *testing.T) {
	for _, c := range []struct {
		name    string
		files   []string
		visible string
		want    []Card
	}{
		{"none", []string{"nvidiactl", "nvidia-uvm", "null"}, "", nil},
		{"one, named", []string{"nvidia0", "nvidiactl"}, "GPU-1a-2b", []Card{{UUID: "GPU-1a-2b"}}},
		{"one, all are visible", []string{"nvidia3"}, "all", []Card{{Minor: 3}}},
		{"one, a name that is a path", []string{"nvidia0"}, "GPU-/../..", []Card{{}}},
		{"in the order of their numbers", []string{"nvidia10", "nvidia2"}, "GPU-a,GPU-b", []Card{{Minor: 2}, {Minor: 10, Index: 1}}},
	} {
		got, err := Devices{Dir: deviceDir(t, c.files...), Visible: c.visible}.Cards()
		if err != nil || !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: %+v, %v; want %+v", c.name, got, err, c.want)
		}
	}
}

type answers struct {
	cards []Card
	err   error
}

func (a answers) Cards() ([]Card, error) { return a.cards, a.err }

// The fallback is for pods without the library alone: what NVML says, also that something is wrong, counts.
func TestFind(t *testing.T) {
	real, files := []Card{{UUID: "GPU-1", Memory: 1 << 30}}, []Card{{Minor: 1}}
	if got, note, err := Find(answers{cards: real}, answers{cards: files}); err != nil || note != "" || !reflect.DeepEqual(got, real) {
		t.Errorf("with NVML: %v %q %v", got, note, err)
	}
	if got, note, err := Find(answers{err: ErrNoLibrary}, answers{cards: files}); err != nil || note == "" || !reflect.DeepEqual(got, files) {
		t.Errorf("without NVML: %v %q %v", got, note, err)
	}
	if got, _, err := Find(answers{err: errors.New("the card fell off the bus")}, answers{cards: files}); err == nil {
		t.Errorf("with a broken card: %v", got)
	}
}

// A worker that has the host's fourth card has it as its first in gres.conf; another count of cards is said, with what may be wrong.
func TestLinks(t *testing.T) {
	devices, dir := deviceDir(t, "nvidia3", "nvidia6"), filepath.Join(t.TempDir(), "run", "cards")
	cards, err := Devices{Dir: devices}.Cards()
	if err != nil {
		t.Fatal(err)
	}
	for range 2 { // a second start finds the first one's
		if err := Links(cards, 2, devices, dir); err != nil {
			t.Fatal(err)
		}
	}
	for link, device := range map[string]string{"nvidia0": "nvidia3", "nvidia1": "nvidia6"} {
		if got, err := os.Readlink(filepath.Join(dir, link)); err != nil || got != filepath.Join(devices, device) {
			t.Errorf("%s leads to %q, %v; want %s", link, got, err, device)
		}
	}
	for _, c := range []struct {
		cards []Card
		want  int
		says  string
	}{
		{cards, 1, "the site gives this worker 1 card, and the pod has 2 cards (/dev/nvidia3, /dev/nvidia6): write gpus: 2"},
		{nil, 4, "the site gives this worker 4 cards, and the pod has none: the host's container runtime passes no card on"},
	} {
		dir := filepath.Join(t.TempDir(), "cards")
		err := Links(c.cards, c.want, "/dev", dir)
		if err == nil || !strings.HasPrefix(err.Error(), c.says) {
			t.Errorf("%d of %d cards: %v", len(c.cards), c.want, err)
		}
		if _, err := os.Stat(dir); err == nil {
			t.Errorf("%d of %d cards: something is linked", len(c.cards), c.want)
		}
	}
}

func TestNames(t *testing.T) {
	named, unnamed := Card{UUID: "GPU-7", Minor: 2}, Card{Minor: 2, Index: 1}
	if named.Name() != "GPU-7" || named.Visible() != "GPU-7" || unnamed.Name() != "nvidia2" || unnamed.Visible() != "1" {
		t.Errorf("%s %s, %s %s", named.Name(), named.Visible(), unnamed.Name(), unnamed.Visible())
	}
}
