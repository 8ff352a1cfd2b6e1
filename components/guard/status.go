package guard

import (
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/berth-hpc/berth/components/api/v1alpha1"
)

// maxMessage keeps a condition's message readable, and far under the API server's limit of 32 KiB.
const maxMessage = 4000

// WriteStatus turns an outcome into the status that people and Flux read. Flux's kstatus takes Stalled for failed,
// Reconciling for in progress, and Ready for done.
func WriteStatus(config *v1alpha1.SlurmConfig, outcome Outcome, now metav1.Time) {
	status := &config.Status
	status.ObservedGeneration = config.Generation
	status.State = outcome.State
	message := outcome.Message
	if message == "" {
		message = outcome.Note
	}
	if len(message) > maxMessage {
		message = message[:maxMessage] + "…"
	}
	status.Message = message
	if outcome.State == v1alpha1.ConfigApplied {
		if hash := config.ConfigHash(); status.AcceptedHash != hash {
			status.AcceptedHash, status.AcceptedAt = hash, &now
		}
	}
	if outcome.AccountsDone {
		status.AccountsGeneration = config.Generation
	}
	switch {
	case outcome.State == v1alpha1.ConfigRefused:
		unset(config, v1alpha1.ConditionReconciling)
		set(config, v1alpha1.ConditionStalled, metav1.ConditionTrue, "Refused", message)
		set(config, v1alpha1.ConditionReady, metav1.ConditionFalse, "Refused", message)
	case outcome.State == v1alpha1.ConfigApplied && outcome.AccountsDone:
		unset(config, v1alpha1.ConditionReconciling)
		unset(config, v1alpha1.ConditionStalled)
		ready := "slurmctld runs with this configuration"
		if message != "" {
			ready += "; " + message
		}
		set(config, v1alpha1.ConditionReady, metav1.ConditionTrue, "Applied", ready)
	case outcome.State == v1alpha1.ConfigApplied:
		progress(config, "AccountsPending", message)
	default:
		progress(config, string(outcome.State), message)
	}
}

func progress(config *v1alpha1.SlurmConfig, reason, message string) {
	unset(config, v1alpha1.ConditionStalled)
	set(config, v1alpha1.ConditionReconciling, metav1.ConditionTrue, reason, message)
	set(config, v1alpha1.ConditionReady, metav1.ConditionFalse, reason, message)
}

func set(config *v1alpha1.SlurmConfig, kind string, status metav1.ConditionStatus, reason, message string) {
	meta.SetStatusCondition(&config.Status.Conditions, metav1.Condition{
		Type: kind, Status: status, Reason: reason, Message: message, ObservedGeneration: config.Generation,
	})
}

func unset(config *v1alpha1.SlurmConfig, kind string) {
	meta.RemoveStatusCondition(&config.Status.Conditions, kind)
}
