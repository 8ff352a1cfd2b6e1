package card

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// Links gives the cards the names under which gres.conf knows them, nvidia0 and up in dir: a pod has its cards under the numbers that they
// have on the host, so that each of four workers of a host with four cards has another. Cards that are not as many as the site says
// are an error, and nothing is linked. In a directory of its own and not in devices: CUDA would take /dev/nvidia0 for the host's first card.
func Links(cards []Card, want int, devices, dir string) error {
	if len(cards) != want {
		return fmt.Errorf("the site gives this worker %s, and the pod has %s", count(want), there(cards, devices))
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("cards: %w", err)
	}
	for i, c := range cards {
		name := filepath.Join(dir, fmt.Sprintf("nvidia%d", i))
		if err := os.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("cards: %w", err)
		}
		if err := os.Symlink(c.device(devices), name); err != nil {
			return fmt.Errorf("cards: %w", err)
		}
	}
	return nil
}

func (c Card) device(devices string) string {
	return filepath.Join(devices, fmt.Sprintf("nvidia%d", c.Minor))
}

func count(n int) string {
	if n == 1 {
		return "1 card"
	}
	return fmt.Sprintf("%d cards", n)
}

// there says what was found, and what it may come from.
func there(cards []Card, devices string) string {
	if len(cards) == 0 {
		return "none: the host's container runtime passes no card on; install NVIDIA's container toolkit there, and see that its runtime class nvidia works"
	}
	var names []string
	for _, c := range cards {
		names = append(names, c.device(devices))
	}
	return fmt.Sprintf("%s (%s): write gpus: %d in the pool, or let the device plugin, and no environment of the pool, choose the cards", count(len(cards)), strings.Join(names, ", "), len(cards))
}
