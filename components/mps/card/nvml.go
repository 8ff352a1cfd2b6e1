//go:build cgo

package card

import (
	"fmt"
	"sort"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

// library is what this package asks NVML.
type library interface {
	Init() nvml.Return
	Shutdown() nvml.Return
	DeviceGetCount() (int, nvml.Return)
	DeviceGetHandleByIndex(index int) (nvml.Device, nvml.Return)
	ErrorString(nvml.Return) string
}

type byNVML struct{ library library }

// NVML finds cards through the driver's management library.
func NVML() Finder { return byNVML{nvml.New()} }

func (n byNVML) Cards() ([]Card, error) {
	if got := n.library.Init(); got == nvml.ERROR_LIBRARY_NOT_FOUND || got == nvml.ERROR_DRIVER_NOT_LOADED {
		return nil, fmt.Errorf("%w: %s", ErrNoLibrary, n.library.ErrorString(got))
	} else if got != nvml.SUCCESS {
		return nil, fmt.Errorf("cards: NVML does not start: %s", n.library.ErrorString(got))
	}
	defer n.library.Shutdown()
	count, got := n.library.DeviceGetCount()
	if got != nvml.SUCCESS {
		return nil, fmt.Errorf("cards: NVML does not count them: %s", n.library.ErrorString(got))
	}
	cards := make([]Card, 0, count)
	for index := range count {
		c, got := n.card(index)
		if got != nvml.SUCCESS {
			return nil, fmt.Errorf("cards: NVML does not describe card %d of %d: %s", index, count, n.library.ErrorString(got))
		}
		if !uuid.MatchString(c.UUID) {
			return nil, fmt.Errorf("cards: card %d is named %q, which is no whole card", index, c.UUID)
		}
		cards = append(cards, c)
	}
	sort.Slice(cards, func(i, j int) bool { return cards[i].Minor < cards[j].Minor })
	for i := range cards {
		cards[i].Index = i
	}
	return cards, nil
}

func (n byNVML) card(index int) (Card, nvml.Return) {
	device, got := n.library.DeviceGetHandleByIndex(index)
	if got != nvml.SUCCESS {
		return Card{}, got
	}
	id, got := device.GetUUID()
	if got != nvml.SUCCESS {
		return Card{}, got
	}
	minor, got := device.GetMinorNumber()
	if got != nvml.SUCCESS {
		return Card{}, got
	}
	memory, got := device.GetMemoryInfo()
	return Card{UUID: id, Minor: minor, Memory: memory.Total}, got
}
