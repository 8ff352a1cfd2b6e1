package command

import (
	"fmt"
	"io"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"

	"github.com/berth-hpc/berth/renderer/compile/helmchart"
)

// versionReport is what version says.
type versionReport struct {
	Berth      string `json:"berth"`
	Go         string `json:"go"`
	HelmSDK    string `json:"helmSDK"`
	Kustomize  string `json:"kustomize"`
	Kubernetes string `json:"kubernetes"` // that charts are rendered for
	Platform   string `json:"platform"`
}

func newVersion(s *settings) *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Say which berth this is, and what it renders with",
		Long: `Version names this berth, and the libraries whose versions can change what it renders.

` + exitCodesHelp,
		Example: `  berth version
  berth version --output json`,
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			report := versionReport{
				Berth: version(), Go: runtime.Version(), Kubernetes: helmchart.KubeVersion,
				HelmSDK: moduleVersion("helm.sh/helm/v3"), Kustomize: moduleVersion("sigs.k8s.io/kustomize/api"),
				Platform: runtime.GOOS + "/" + runtime.GOARCH,
			}
			return s.print(report, func(w io.Writer) error {
				_, err := fmt.Fprintf(w, "berth %s (%s, %s)\nrenders with Helm %s and kustomize %s for Kubernetes %s\n",
					report.Berth, report.Go, report.Platform, report.HelmSDK, report.Kustomize, report.Kubernetes)
				return err
			})
		},
	}
}

// moduleVersion is the version of a library in this binary.
func moduleVersion(path string) string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	for _, dependency := range info.Deps {
		if dependency.Path == path {
			return dependency.Version
		}
	}
	return "unknown"
}
