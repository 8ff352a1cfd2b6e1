-- job_submit.lua of the profile "learned" for a site without an advisor: it gives no advice and no job a boost. It is here
-- because slurmctld does not start when JobSubmitPlugins names lua and the file is missing. An advisor brings its own
-- (value slurm.config.files, which wins).

function slurm_job_submit(job_desc, part_list, submit_uid)
   return slurm.SUCCESS
end

function slurm_job_modify(job_desc, job_rec, part_list, modify_uid)
   return slurm.SUCCESS
end

return slurm.SUCCESS
