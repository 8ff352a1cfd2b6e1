package slurmrest

import (
	"fmt"
	"math/bits"
	"strings"
)

// NodeState is a set of the words that slurmrestd uses for a node: one base state and any flags.
type NodeState uint64

// The words, in the order of the OpenAPI description (enum node_states of v0.0.42).
const (
	Invalid NodeState = 1 << iota
	Unknown
	Down
	Idle
	Allocated
	Error
	Mixed
	Future
	Reserved
	Undrain
	Cloud
	Resume
	Drain
	Completing
	NotResponding
	PoweredDown
	Fail
	PoweringUp
	Maintenance
	RebootRequested
	RebootCanceled
	PoweringDown
	DynamicFuture
	RebootIssued
	Planned
	InvalidReg
	PowerDown
	PowerUp
	PowerDrain
	DynamicNorm

	numStates = iota
)

var stateWords = [numStates]string{
	"INVALID", "UNKNOWN", "DOWN", "IDLE", "ALLOCATED", "ERROR", "MIXED", "FUTURE", "RESERVED", "UNDRAIN", "CLOUD",
	"RESUME", "DRAIN", "COMPLETING", "NOT_RESPONDING", "POWERED_DOWN", "FAIL", "POWERING_UP", "MAINTENANCE",
	"REBOOT_REQUESTED", "REBOOT_CANCELED", "POWERING_DOWN", "DYNAMIC_FUTURE", "REBOOT_ISSUED", "PLANNED", "INVALID_REG",
	"POWER_DOWN", "POWER_UP", "POWER_DRAIN", "DYNAMIC_NORM",
}

var stateByWord = func() map[string]NodeState {
	states := make(map[string]NodeState, numStates)
	for i, word := range stateWords {
		states[word] = 1 << i
	}
	return states
}()

// baseStates are the words of which a node has exactly one.
const baseStates = Unknown | Down | Idle | Allocated | Error | Mixed | Future

// Has reports whether the set holds any of the given words.
func (s NodeState) Has(any NodeState) bool { return s&any != 0 }

// Words returns the set as slurmrestd writes it.
func (s NodeState) Words() []string {
	words := make([]string, 0, bits.OnesCount64(uint64(s)))
	for rest := uint64(s); rest != 0; rest &= rest - 1 {
		words = append(words, stateWords[bits.TrailingZeros64(rest)])
	}
	return words
}

// String returns the words joined by "+", as scontrol does.
func (s NodeState) String() string { return strings.Join(s.Words(), "+") }

// MarshalText writes the set as String does.
func (s NodeState) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText reads what MarshalText writes.
func (s *NodeState) UnmarshalText(text []byte) error {
	*s = 0
	if len(text) == 0 {
		return nil
	}
	state, unknown := parseState(strings.Split(string(text), "+"))
	if len(unknown) > 0 {
		return fmt.Errorf("%q is not a word of Slurm's for a node's state", unknown[0])
	}
	*s = state
	return nil
}

// parseState reads a node's words. Words that it does not know come back apart: a newer Slurm may say something about
// the node that this program does not understand, so whoever acts on the node must not.
func parseState(words []string) (state NodeState, unknown []string) {
	for _, word := range words {
		bit, ok := stateByWord[word]
		if !ok {
			unknown = append(unknown, word)
		}
		state |= bit
	}
	return state, unknown
}
