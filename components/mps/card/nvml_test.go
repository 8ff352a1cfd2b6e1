//go:build cgo

package card

import (
	"errors"
	"strings"
	"testing"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock/dgxa100"
)

func TestNVML(t *testing.T) {
	server := dgxa100.New()
	server.ErrorStringFunc = func(r nvml.Return) string { return "said NVML" }
	cards, err := byNVML{server}.Cards()
	if err != nil || len(cards) != 8 {
		t.Fatalf("%d cards of a DGX A100's 8, %v", len(cards), err)
	}
	for i, c := range cards {
		if c.Minor != i || c.Index != i || !strings.HasPrefix(c.UUID, "GPU-") || c.Memory < 39<<30 || c.Memory > 41<<30 {
			t.Errorf("card %d is %+v; want a 40 GiB card", i, c)
		}
	}

	server.InitFunc = func() nvml.Return { return nvml.ERROR_LIBRARY_NOT_FOUND }
	if _, err := (byNVML{server}).Cards(); !errors.Is(err, ErrNoLibrary) {
		t.Errorf("without the library: %v", err)
	}
	server.InitFunc = func() nvml.Return { return nvml.ERROR_UNKNOWN }
	if _, err := (byNVML{server}).Cards(); err == nil || errors.Is(err, ErrNoLibrary) {
		t.Errorf("a library that fails is no pod without one: %v", err)
	}
}

// The real binding says so where the driver is not there, and does not end the program.
func TestNoDriver(t *testing.T) {
	if _, err := NVML().Cards(); err != nil && !errors.Is(err, ErrNoLibrary) {
		t.Errorf("%v", err)
	}
}
