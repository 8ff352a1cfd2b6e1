package compile

import (
	"sort"

	"github.com/berth-hpc/berth/renderer/compile/slurmconf"
	"github.com/berth-hpc/berth/renderer/site"
)

// pendingField is a field, or a whole part, of a site that no layer renders yet.
type pendingField struct {
	pattern string // path with * for names; everything below it counts
	why     string
	set     func(*site.Site) bool // whether the site asks for something by it that is not rendered
	some    bool                  // other sites render it
}

// pendingFields are all such fields. A field of a site changes the rendered tree, or it is here, or it is in describingFields:
// a test walks the site's type and holds this to be so.
func pendingFields() []pendingField {
	return []pendingField{
		{"hosts.*.rack", "no pool names hosts of one rack, or as many hosts as it has workers, so no worker's rack is known", func(s *site.Site) bool {
			return anyOf(s.Hosts, func(h site.Host) bool { return h.Rack != "" }) && !slurmconf.KnowsRacks(s)
		}, true},
		{"monitoring", "Prometheus is an upstream chart, and delivery mode manifests uses none", func(s *site.Site) bool {
			return s.Monitoring.Enabled && s.Delivery.Mode == "manifests"
		}, true},
		{"monitoring.receivers.*.email", "mail needs a relay, and the site has no field for it; use a webhook", func(s *site.Site) bool {
			return s.Monitoring.Enabled && anyOf(s.Monitoring.Receivers, func(r site.Alert) bool { return r.Email != "" })
		}, false},
		{"monitoring.otel", "nothing exports to OpenTelemetry yet", func(s *site.Site) bool { return s.Monitoring.OTel != "" }, false},
		{"storage.class", "the claims of storage.local are directories of the host, of no class", func(s *site.Site) bool {
			metrics := s.Monitoring.Enabled && s.Delivery.Mode != "manifests" // Prometheus' claim is of the class too
			return s.Storage.Type == "local" && s.Storage.Class != "local-path" && !metrics
		}, true},
	}
}

// describingFields say what is there, for the schema's rules or for another command; they are not meant to render anything.
var describingFields = map[string]string{
	"variantOf":                "names the site that a box was derived from",
	"hosts.*.address":          "checked against the LAN and other hosts",
	"hosts.*.cpus":             "bounds what pools may ask of a host",
	"hosts.*.memory":           "bounds what pools may ask of a host",
	"hosts.*.gpus":             "gives pools their model and speed, and bounds their cards",
	"pools.*.partition.pools":  "a pool's own partition has that pool's nodes",
	"pools.*.gpuMemory":        "derived from the hosts, for share limits",
	"storage.nfs.allowedCIDRs": "checked to cover the LAN and the pods",
	"acknowledge":              "lets render write what it would refuse",
	"advisor.evidence":         "what live mode stands on; the schema compares it with the checkpoint and the topology",
	"secrets.recipients":       "whom berth secrets init seals for",
}

// pending names the fields that this site sets and that render nothing yet.
func pending(s *site.Site) []Omission {
	var out []Omission
	for _, field := range pendingFields() {
		if field.set(s) {
			out = append(out, Omission{What: field.pattern, Why: field.why})
		}
	}
	return out
}

func anyOf[V any](m map[string]V, holds func(V) bool) bool {
	for _, v := range m {
		if holds(v) {
			return true
		}
	}
	return false
}

// FieldsWithoutEffect are the paths, with * for names, of all fields that change nothing that is rendered: those that render
// nothing yet, and those that only describe. Everything below a path counts.
func FieldsWithoutEffect() []string {
	var paths []string
	for _, field := range pendingFields() {
		if !field.some {
			paths = append(paths, field.pattern)
		}
	}
	for path := range describingFields {
		paths = append(paths, path)
	}
	sort.Strings(paths)
	return paths
}
