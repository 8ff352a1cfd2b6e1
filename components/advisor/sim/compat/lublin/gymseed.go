package lublin

import (
	"crypto/sha512"
	"encoding/binary"
	"strconv"
)

// mt19937 is the Mersenne Twister of Matsumoto and Nishimura (1998), which chose the published sequences.
type mt19937 struct {
	s [624]uint32
	i int
}

// newGymRNG seeds a twister as the gym toolkit of 2019 did: by the words of the first eight bytes of the SHA-512 of the
// decimal seed.
func newGymRNG(seed int64) *mt19937 {
	h := sha512.Sum512([]byte(strconv.FormatInt(seed, 10)))
	return newMT([]uint32{binary.LittleEndian.Uint32(h[0:]), binary.LittleEndian.Uint32(h[4:])})
}

// newMT is init_by_array of the authors' paper.
func newMT(key []uint32) *mt19937 {
	const n = 624
	m := &mt19937{i: n}
	m.s[0] = 19650218
	for i := 1; i < n; i++ {
		m.s[i] = 1812433253*(m.s[i-1]^m.s[i-1]>>30) + uint32(i)
	}
	i, j := 1, 0
	for range max(n, len(key)) {
		m.s[i] = (m.s[i] ^ (m.s[i-1]^m.s[i-1]>>30)*1664525) + key[j] + uint32(j)
		if i++; i == n {
			m.s[0], i = m.s[n-1], 1
		}
		j = (j + 1) % len(key)
	}
	for range n - 1 {
		m.s[i] = (m.s[i] ^ (m.s[i-1]^m.s[i-1]>>30)*1566083941) - uint32(i)
		if i++; i == n {
			m.s[0], i = m.s[n-1], 1
		}
	}
	m.s[0] = 1 << 31
	return m
}

func (m *mt19937) uint32() uint32 {
	const n = 624
	if m.i == n {
		for k := range n {
			y := m.s[k]&(1<<31) | m.s[(k+1)%n]&(1<<31-1)
			m.s[k] = m.s[(k+397)%n] ^ y>>1
			if y&1 == 1 {
				m.s[k] ^= 0x9908b0df
			}
		}
		m.i = 0
	}
	y := m.s[m.i]
	m.i++
	y ^= y >> 11
	y ^= y << 7 & 0x9d2c5680
	y ^= y << 15 & 0xefc60000
	return y ^ y>>18
}

// between draws from low up to and without high, by masking and rejection.
func (m *mt19937) between(low, high int) int {
	span := uint32(high - low - 1)
	mask := span
	for s := 1; s < 32; s *= 2 {
		mask |= mask >> s
	}
	for {
		if v := m.uint32() & mask; v <= span {
			return low + int(v)
		}
	}
}

// Starts gives where the published evaluation begins its sequences in a log of n jobs: for seed 1 and 10,000 jobs
// 1981, 2756, 4299 and so on. It gives nothing where the log is too short for the evaluation's margins.
func Starts(n, length, count int, seed int64) []int {
	if n-2*length-1 <= 0 {
		return nil
	}
	rng := newGymRNG(seed)
	starts := make([]int, count)
	for i := range starts {
		starts[i] = rng.between(length, n-length-1)
	}
	return starts
}
