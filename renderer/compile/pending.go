package compile

import (
	"sort"

	"github.com/berth-hpc/berth/renderer/site"
)

// pendingFields are the fields of a site that no layer renders yet, each with the reason. A field is either here or changes
// the rendered tree; a test holds the two apart.
var pendingFields = map[string]string{}

// pending names those of the fields above that this site sets, and those that its choices leave without effect.
func pending(s *site.Site) []Omission {
	var out []Omission
	sort.Slice(out, func(i, j int) bool { return out[i].What < out[j].What })
	return out
}
