// Package naming holds the names that several layers must agree on: labels, claims, classes and the repository's folders. It
// holds no behaviour.
package naming

import "path"

// Names of objects that one layer makes and another uses.
const (
	PartOf           = "berth"
	SourceName       = "berth"          // GitRepository and the site's own Kustomization
	ReleaseName      = "slurm-platform" // Helm release of our chart
	SlurmConfigName  = "slurm"
	RuntimeClass     = "nvidia"
	WorkerPriority   = "berth-worker"
	ControlPriority  = "berth-control"
	ClaimState       = "slurm-state"
	ClaimDatabase    = "slurm-database"
	ClaimHome        = "slurm-home"
	ClaimShared      = "slurm-shared"
	SharedClass      = "berth-shared"
	GPUNamespace     = "gpu-operator"
	StorageNamespace = "nfs-provisioner"
)

// ChartPath is where the slurm-platform chart lies in a repository, this one and every lab's own.
const ChartPath = "components/chart/slurm-platform"

// Labels are what every object of ours carries, with its name within the application.
func Labels(name string) map[string]string {
	return map[string]string{
		"app.kubernetes.io/name":       name,
		"app.kubernetes.io/part-of":    PartOf,
		"app.kubernetes.io/managed-by": PartOf,
	}
}

// Keep marks an object that holds data: neither Helm nor Flux ever removes it.
func Keep() map[string]string {
	return map[string]string{
		"helm.sh/resource-policy":           "keep",
		"kustomize.toolkit.fluxcd.io/prune": "disabled",
	}
}

// Overlay is a site's generated folder, with / between parts.
func Overlay(site string) string { return path.Join("overlays", site) }

// Patches is where a user's patches for one layer live.
func Patches(site, layer string) string { return path.Join("overlays", site, "patches", layer) }

// Cluster is the folder of a site's Flux entry points, sealed secrets and evidence.
func Cluster(site string) string { return path.Join("clusters", site) }

// Secrets is the folder of a site's sealed secrets.
func Secrets(site string) string { return path.Join("clusters", site, "secrets") }
