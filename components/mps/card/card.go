// Package card finds the NVIDIA cards that a worker pod really has.
package card

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
)

// Card is one card as the pod sees it.
type Card struct {
	// UUID is NVIDIA's name of the card, "" where nothing tells it.
	UUID string
	// Minor is the number in the device file's name, /dev/nvidia<Minor>.
	Minor int
	// Index is the card's place among the pod's, from 0.
	Index int
	// Memory is the card's whole memory in bytes, 0 where nothing tells it.
	Memory uint64
}

// Name names the card in paths and messages: its UUID, or nvidia<Minor>.
func (c Card) Name() string {
	if c.UUID != "" {
		return c.UUID
	}
	return "nvidia" + strconv.Itoa(c.Minor)
}

// Visible is the card as CUDA_VISIBLE_DEVICES names it to a process that sees all cards of the pod.
func (c Card) Visible() string {
	if c.UUID != "" {
		return c.UUID
	}
	return strconv.Itoa(c.Index)
}

// ErrNoLibrary says that NVML cannot be asked: this program was built without it, or the pod has no driver libraries.
var ErrNoLibrary = errors.New("no NVML")

// Finder lists the cards in the order of their minor numbers. It returns ErrNoLibrary, wrapped, where another finder has to be asked.
type Finder interface {
	Cards() ([]Card, error)
}

// uuids of cards, not of parts of them (MIG-…): in a path, so nothing else may be in them.
var uuid = regexp.MustCompile(`^GPU-[0-9A-Za-z-]{1,60}$`)

// Devices finds cards by their device files, and knows only what the pod's environment says besides: the fallback where there is
// no NVML.
type Devices struct {
	// Dir is where the device files are, /dev.
	Dir string
	// Visible is the value of NVIDIA_VISIBLE_DEVICES, which names the pod's cards where the device plugin passes UUIDs.
	Visible string
}

// Cards lists the files nvidia<number>.
func (d Devices) Cards() ([]Card, error) {
	names, err := filepath.Glob(filepath.Join(d.Dir, "nvidia[0-9]*"))
	if err != nil {
		return nil, fmt.Errorf("cards: %w", err)
	}
	minors := map[int]bool{}
	highest := -1
	for _, name := range names {
		minor, err := strconv.Atoi(strings.TrimPrefix(filepath.Base(name), "nvidia"))
		info, statErr := os.Stat(name)
		if err != nil || statErr != nil || info.IsDir() {
			continue
		}
		minors[minor], highest = true, max(highest, minor)
	}
	var cards []Card
	for minor := range highest + 1 {
		if minors[minor] {
			cards = append(cards, Card{Minor: minor, Index: len(cards)})
		}
	}
	ids := strings.Split(d.Visible, ",")
	if len(ids) != len(cards) {
		return cards, nil
	}
	// Which of several names is which file nothing says here; for one card there is no question.
	if len(cards) == 1 && uuid.MatchString(ids[0]) {
		cards[0].UUID = ids[0]
	}
	return cards, nil
}

// Find asks NVML, and the fallback where there is none; note says why then.
func Find(nvml, fallback Finder) (cards []Card, note string, err error) {
	cards, err = nvml.Cards()
	if errors.Is(err, ErrNoLibrary) {
		note = err.Error()
		cards, err = fallback.Cards()
	}
	return cards, note, err
}
