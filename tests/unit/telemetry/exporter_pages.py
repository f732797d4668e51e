"""Small pages with the names, labels and units that exporters give their series; the values are made up."""

TRTLLM = b"""\
# TYPE trtllm_num_requests_running gauge
trtllm_num_requests_running{engine_type="trtllm",model_name="m"} 6.0
trtllm_num_requests_waiting{engine_type="trtllm",model_name="m"} 2.0
trtllm_num_paused_requests{engine_type="trtllm",model_name="m"} 1.0
trtllm_kv_cache_utilization{engine_type="trtllm",model_name="m"} 0.62
trtllm_kv_cache_hit_rate{engine_type="trtllm",model_name="m"} 0.1
trtllm_kv_cache_reused_blocks_total{engine_type="trtllm",model_name="m"} 30.0
trtllm_kv_cache_missed_blocks_total{engine_type="trtllm",model_name="m"} 90.0
trtllm_prompt_tokens_total{engine_type="trtllm",model_name="m"} 4000.0
trtllm_generation_tokens_total{engine_type="trtllm",model_name="m"} 900.0
trtllm_request_success_total{engine_type="trtllm",finished_reason="length",model_name="m"} 9.0
trtllm_request_queue_time_seconds_sum{engine_type="trtllm",model_name="m"} 0.5
trtllm_request_queue_time_seconds_count{engine_type="trtllm",model_name="m"} 9.0
trtllm_spec_decode_num_draft_tokens_total{engine_type="trtllm",model_name="m"} 300.0
trtllm_spec_decode_num_accepted_tokens_total{engine_type="trtllm",model_name="m"} 120.0
trtllm_spec_decode_acceptance_length{engine_type="trtllm",model_name="m"} 2.2
"""
TRITON = b"""\
# TYPE nv_inference_request_success counter
nv_inference_request_success{model="m",version="1"} 44
nv_inference_pending_request_count{model="m",version="1"} 3
nv_trt_llm_request_metrics{model="m",request_type="waiting",version="1"} 1
nv_trt_llm_request_metrics{model="m",request_type="context",version="1"} 2
nv_trt_llm_request_metrics{model="m",request_type="active",version="1"} 5
nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type="used",model="m",version="1"} 200
nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type="fraction",model="m",version="1"} 0.25
nv_gpu_power_usage{gpu_uuid="GPU-aa"} 250.5
nv_energy_consumption{gpu_uuid="GPU-aa"} 205620.5
nv_gpu_utilization{gpu_uuid="GPU-aa"} 0.5
nv_gpu_memory_used_bytes{gpu_uuid="GPU-aa"} 1073741824
"""
DYNAMO_FRONTEND = b"""\
dynamo_frontend_inflight_requests{model="m"} 8
dynamo_frontend_queued_requests{model="m"} 3
dynamo_frontend_requests_total{endpoint="chat_completions",model="m",request_type="stream",status="success"} 20
dynamo_frontend_input_sequence_tokens_sum{model="m"} 5000
dynamo_frontend_input_sequence_tokens_count{model="m"} 20
dynamo_frontend_output_sequence_tokens_sum{model="m"} 1500
dynamo_frontend_output_sequence_tokens_count{model="m"} 20
dynamo_frontend_time_to_first_token_seconds_sum{model="m"} 4.5
dynamo_frontend_time_to_first_token_seconds_count{model="m"} 20
"""
DYNAMO_COMPONENT = b"""\
dynamo_component_inflight_requests{dynamo_component="backend",dynamo_endpoint="generate"} 4
dynamo_component_kvstats_gpu_cache_usage_percent{dynamo_component="backend"} 0.3
dynamo_component_kvstats_gpu_prefix_cache_hit_rate{dynamo_component="backend"} 0.4
dynamo_component_requests_total{dynamo_component="backend",dynamo_endpoint="generate"} 17
"""
LLM_D_EPP = b"""\
llm_d_epp_request_running{model_name="m"} 12
llm_d_epp_average_queue_size{name="pool"} 1.5
llm_d_epp_average_kv_cache_utilization{name="pool"} 0.45
llm_d_epp_request_total{model_name="m",target_model_name="m"} 60
llm_d_epp_request_input_tokens_sum{model_name="m"} 6000
llm_d_epp_request_cached_tokens_sum{model_name="m"} 1500
llm_d_epp_request_output_tokens_sum{model_name="m"} 900
llm_d_epp_request_ttft_seconds_sum{model_name="m"} 6
llm_d_epp_request_ttft_seconds_count{model_name="m"} 60
"""
DCGM = b"""\
# TYPE DCGM_FI_DEV_SM_CLOCK gauge
DCGM_FI_DEV_SM_CLOCK{gpu="0",UUID="GPU-aa",device="nvidia0",modelName="H100",Hostname="n1"} 1980
DCGM_FI_DEV_GPU_TEMP{gpu="0",UUID="GPU-aa",device="nvidia0",modelName="H100",Hostname="n1"} 61
DCGM_FI_DEV_POWER_USAGE{gpu="0",UUID="GPU-aa",device="nvidia0",modelName="H100",Hostname="n1"} 512.25
# TYPE DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION counter
DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION{gpu="0",UUID="GPU-aa",device="nvidia0",modelName="H100",Hostname="n1"} 15152422938
DCGM_FI_DEV_GPU_UTIL{gpu="0",UUID="GPU-aa",device="nvidia0",modelName="H100",Hostname="n1"} 87
DCGM_FI_DEV_FB_USED{gpu="0",UUID="GPU-aa",device="nvidia0",modelName="H100",Hostname="n1"} 2048
DCGM_FI_PROF_GR_ENGINE_ACTIVE{gpu="0",UUID="GPU-aa",device="nvidia0",modelName="H100",Hostname="n1"} 0.81
"""
# Two instances (MIG) of a GPU repeat its energy; one is used by two pods, which repeats all of it
MIG = b"""\
DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION{gpu="0",UUID="GPU-aa",GPU_I_PROFILE="3g.40gb",GPU_I_ID="1",Hostname="n1",pod="a"} 5000
DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION{gpu="0",UUID="GPU-aa",GPU_I_PROFILE="3g.40gb",GPU_I_ID="1",Hostname="n1",pod="b"} 5000
DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION{gpu="0",UUID="GPU-aa",GPU_I_PROFILE="4g.40gb",GPU_I_ID="2",Hostname="n1",pod="c"} 5000
DCGM_FI_DEV_FB_USED{gpu="0",UUID="GPU-aa",GPU_I_PROFILE="3g.40gb",GPU_I_ID="1",Hostname="n1",pod="a"} 100
DCGM_FI_DEV_FB_USED{gpu="0",UUID="GPU-aa",GPU_I_PROFILE="3g.40gb",GPU_I_ID="1",Hostname="n1",pod="b"} 100
DCGM_FI_DEV_FB_USED{gpu="0",UUID="GPU-aa",GPU_I_PROFILE="4g.40gb",GPU_I_ID="2",Hostname="n1",pod="c"} 50
DCGM_FI_PROF_GR_ENGINE_ACTIVE{gpu="0",UUID="GPU-aa",GPU_I_PROFILE="3g.40gb",GPU_I_ID="1",Hostname="n1",pod="a"} 0.5
DCGM_FI_PROF_GR_ENGINE_ACTIVE{gpu="0",UUID="GPU-aa",GPU_I_PROFILE="4g.40gb",GPU_I_ID="2",Hostname="n1",pod="c"} 0.1
"""
AMD = b"""\
# TYPE gpu_package_power gauge
gpu_package_power{gpu_id="0",card_model="MI300X",serial_number="SN-0",hostname="n2"} 748
gpu_package_power{gpu_id="1",card_model="MI300X",serial_number="SN-1",hostname="n2"} 751
# TYPE gpu_energy_consumed gauge
gpu_energy_consumed{gpu_id="0",card_model="MI300X",serial_number="SN-0",hostname="n2"} 1.4000000125e+13
gpu_energy_consumed{gpu_id="1",card_model="MI300X",serial_number="SN-1",hostname="n2"} 2e+12
gpu_gfx_activity{gpu_id="0",card_model="MI300X",serial_number="SN-0",hostname="n2"} 93
gpu_used_vram{gpu_id="0",card_model="MI300X",serial_number="SN-0",hostname="n2"} 183265
gpu_junction_temperature{gpu_id="0",card_model="MI300X",serial_number="SN-0",hostname="n2"} 76
gpu_clock{gpu_id="0",clock_type="GPU_CLOCK_TYPE_SYSTEM",serial_number="SN-0",hostname="n2"} 2100
gpu_clock{gpu_id="0",clock_type="GPU_CLOCK_TYPE_MEMORY",serial_number="SN-0",hostname="n2"} 1300
"""
NODE = b"""\
node_uname_info{machine="x86_64",nodename="n1",sysname="Linux"} 1
node_cpu_seconds_total{cpu="0",mode="idle"} 900
node_cpu_seconds_total{cpu="0",mode="user"} 90
node_cpu_seconds_total{cpu="1",mode="idle"} 800
node_cpu_seconds_total{cpu="1",mode="user"} 210
node_memory_MemAvailable_bytes 6.4e+10
node_load1 3.5
node_rapl_package_joules_total{index="0",path="/sys/class/powercap/intel-rapl:0"} 1000.5
node_rapl_package_joules_total{index="1",path="/sys/class/powercap/intel-rapl:1"} 2000.25
node_rapl_dram_joules_total{index="0",path="/sys/class/powercap/intel-rapl:0:0"} 300
"""
SPECULATIVE = b"""\
vllm:spec_decode_num_drafts_total{engine="0",model_name="m"} 100.0
vllm:spec_decode_num_drafts_total{engine="1",model_name="m"} 100.0
vllm:spec_decode_num_draft_tokens_total{engine="0",model_name="m"} 300.0
vllm:spec_decode_num_accepted_tokens_total{engine="0",model_name="m"} 150.0
vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="0",model_name="m",position="0"} 80.0
vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="0",model_name="m",position="1"} 50.0
vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="1",model_name="m",position="0"} 20.0
vllm:lora_requests_info{max_lora="4",running_lora_adapters="",waiting_lora_adapters=""} 1.7e+09
vllm:lora_requests_info{max_lora="4",running_lora_adapters="a,b",waiting_lora_adapters="c"} 1.8e+09
"""
# CPX: eight logical GPUs of a board. Power and energy are of the board; what a partition lacks is 0.
CPX = "".join(
    f'{name}{{gpu_id="{8 * board + part}",gpu_partition_id="{part}",gpu_compute_partition_type="cpx",'
    f'serial_number="SN-{board}",hostname="n2"}} {value if part == 0 or repeated else 0}\n'
    for board in (0, 1)
    for name, value, repeated in (
        ("gpu_package_power", 700 + board, True), ("gpu_energy_consumed", (7 + board) * 1e6, False),
        ("gpu_gfx_activity", 60, False), ("gpu_used_vram", 1000, True), ("gpu_junction_temperature", 70, False),
    )
    for part in range(8)
).encode()  # fmt: skip
ENSEMBLE = b"""\
nv_inference_request_success{model="ensemble",version="1"} 40
nv_inference_request_success{model="preprocessing",version="1"} 40
nv_inference_request_success{model="tensorrt_llm",version="1"} 41
nv_inference_request_success{model="postprocessing",version="1"} 40
"""
