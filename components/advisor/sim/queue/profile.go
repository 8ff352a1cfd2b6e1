package queue

import "sort"

// Profile is the number of free processors over future time: a step function, Free[i] from Times[i] until Times[i+1], the
// last one for ever. It is what conservative backfill reserves in.
type Profile struct {
	Times []int64
	Free  []int32
}

// Reset empties the profile to a constant from a time on.
func (p *Profile) Reset(now int64, free int32) {
	p.Times = append(p.Times[:0], now)
	p.Free = append(p.Free[:0], free)
}

// Advance forgets what lies before now.
func (p *Profile) Advance(now int64) {
	i := p.step(now)
	if i > 0 {
		p.Times = append(p.Times[:0], p.Times[i:]...)
		p.Free = append(p.Free[:0], p.Free[i:]...)
	}
	if p.Times[0] < now {
		p.Times[0] = now
	}
}

// step is the step in force at a time (0 if the time is before the profile).
func (p *Profile) step(t int64) int {
	i := sort.Search(len(p.Times), func(i int) bool { return p.Times[i] > t })
	return max(i-1, 0)
}

// cut makes t a boundary and gives its step.
func (p *Profile) cut(t int64) int {
	i := p.step(t)
	if p.Times[i] == t {
		return i
	}
	p.Times = append(p.Times, 0)
	p.Free = append(p.Free, 0)
	copy(p.Times[i+2:], p.Times[i+1:])
	copy(p.Free[i+2:], p.Free[i+1:])
	p.Times[i+1], p.Free[i+1] = t, p.Free[i]
	return i + 1
}

// Add adds procs (negative to take) from start until end.
func (p *Profile) Add(start, end int64, procs int32) {
	if start >= end {
		return
	}
	i := p.cut(start)
	j := p.cut(end)
	for ; i < j; i++ {
		p.Free[i] += procs
	}
}

// Earliest is the first time from 'from' on at which procs processors are free for so long. The last step of a profile must
// have room; callers refuse jobs larger than the machine.
func (p *Profile) Earliest(from, length int64, procs int32) int64 {
	i := p.step(from)
	start := max(from, p.Times[i])
	for k := i; k < len(p.Times); k++ {
		if k > i && p.Times[k] >= start+length {
			return start
		}
		if p.Free[k] < procs {
			if k+1 == len(p.Times) {
				return start // not reached for jobs that fit the machine
			}
			start = p.Times[k+1]
		}
	}
	return start
}
