package platform

import (
	"fmt"

	"github.com/berth-hpc/berth/components/api/v1alpha1"
	"github.com/berth-hpc/berth/renderer/compile/slurmconf"
	"github.com/berth-hpc/berth/renderer/site"
)

// Reservations are the site's maintenance and class windows by name, their pools as lists of nodes.
func Reservations(s *site.Site) ([]v1alpha1.Reservation, error) {
	var out []v1alpha1.Reservation
	for _, name := range sortedNames(s.Reserved) {
		r := s.Reserved[name]
		length, err := slurmconf.ParseTime(r.Duration)
		if err != nil {
			return nil, fmt.Errorf("reservations.%s.duration: %w", name, err)
		}
		if length.IsUnlimited() {
			return nil, fmt.Errorf("reservations.%s.duration: a reservation needs an end; write for example 2:00:00", name)
		}
		start := r.Start
		if len(start) == len("2026-10-01T08:00") {
			start += ":00"
		}
		var nodes []string
		for _, pool := range r.Pools {
			if p, known := s.Pools[pool]; !known || p.Max == 0 {
				return nil, fmt.Errorf("reservations.%s.pools: pool %q is not in pools, or has no nodes", name, pool)
			}
			nodes = append(nodes, slurmconf.PoolNodeNames(pool, s.Pools[pool].Max)...)
		}
		reservation := v1alpha1.Reservation{
			Name: name, Start: start, Duration: int64(length.Duration().Seconds()),
			Users: r.Users, Accounts: r.Accounts, Flags: r.Flags,
		}
		if len(nodes) > 0 {
			reservation.Nodes = slurmconf.Hostlist(nodes)
		}
		out = append(out, reservation)
	}
	return out, nil
}
