//go:build !cgo

package card

import "fmt"

type byNVML struct{}

// NVML finds no cards in a program that was built without cgo, which the library's binding needs.
func NVML() Finder { return byNVML{} }

func (byNVML) Cards() ([]Card, error) {
	return nil, fmt.Errorf("%w: this program was built without cgo", ErrNoLibrary)
}
