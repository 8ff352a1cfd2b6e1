package box

import (
	"context"
	"encoding/json"
	"fmt"
	"sort"
	"strings"
	"time"
)

// Layer is the state of one Flux Kustomization.
type Layer struct {
	Name string
	// Ready is the Ready condition's status: True, False or Unknown; empty when
	// Flux has not looked yet or has not seen the newest spec.
	Ready string
	// Reason and Message are the condition's.
	Reason, Message string
	// Revision is the last one applied, as branch@sha1:commit.
	Revision  string
	Suspended bool
}

// Layers lists the Kustomizations in flux-system by name.
func (b *Box) Layers(ctx context.Context) ([]Layer, error) {
	out, err := b.Kubectl(ctx, "get", "--namespace", "flux-system", "kustomizations.kustomize.toolkit.fluxcd.io", "-o", "json")
	if err != nil {
		return nil, err
	}
	return parseLayers(out)
}

func parseLayers(text string) ([]Layer, error) {
	var answer struct {
		Items []struct {
			Metadata struct {
				Name       string `json:"name"`
				Generation int64  `json:"generation"`
			} `json:"metadata"`
			Spec struct {
				Suspend bool `json:"suspend"`
			} `json:"spec"`
			Status struct {
				ObservedGeneration  int64  `json:"observedGeneration"`
				LastAppliedRevision string `json:"lastAppliedRevision"`
				Conditions          []struct {
					Type    string `json:"type"`
					Status  string `json:"status"`
					Reason  string `json:"reason"`
					Message string `json:"message"`
				} `json:"conditions"`
			} `json:"status"`
		} `json:"items"`
	}
	if err := json.Unmarshal([]byte(text), &answer); err != nil {
		return nil, fmt.Errorf("box: kustomizations: %w", err)
	}
	var layers []Layer
	for _, item := range answer.Items {
		l := Layer{Name: item.Metadata.Name, Revision: item.Status.LastAppliedRevision, Suspended: item.Spec.Suspend}
		for _, c := range item.Status.Conditions {
			if c.Type == "Ready" {
				l.Ready, l.Reason, l.Message = c.Status, c.Reason, c.Message
			}
		}
		if item.Status.ObservedGeneration != item.Metadata.Generation && l.Ready == "True" {
			l.Ready, l.Reason = "", "not looked at since its last change"
		}
		layers = append(layers, l)
	}
	sort.Slice(layers, func(i, j int) bool { return layers[i].Name < layers[j].Name })
	return layers, nil
}

// WaitReady waits until every layer is Ready at the commit. Layers that the
// commit itself adds are waited for too, because the site's own layer, which
// applies them, comes to that revision first.
func (b *Box) WaitReady(ctx context.Context, commit string, within time.Duration) error {
	return Poll(ctx, within, "layers at "+short(commit), func(ctx context.Context) (bool, string, error) {
		layers, err := b.Layers(ctx)
		if err != nil {
			return false, err.Error(), nil
		}
		waiting := waitingFor(layers, commit)
		return len(waiting) == 0, strings.Join(waiting, "; "), nil
	})
}

// waitingFor says of each layer that is not Ready at the commit what it is.
func waitingFor(layers []Layer, commit string) []string {
	if len(layers) == 0 {
		return []string{"no layer is there yet"}
	}
	var waiting []string
	for _, l := range layers {
		switch {
		case l.Suspended:
		case l.Ready != "True":
			waiting = append(waiting, fmt.Sprintf("%s: %s %s", l.Name, l.Reason, l.Message))
		case commit != "" && !strings.HasSuffix(l.Revision, ":"+commit):
			waiting = append(waiting, fmt.Sprintf("%s: still at %s", l.Name, l.Revision))
		}
	}
	return waiting
}

func short(commit string) string {
	if len(commit) > 12 {
		return commit[:12]
	}
	return commit
}
