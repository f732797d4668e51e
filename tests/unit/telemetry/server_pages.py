"""Metrics pages with the names that vLLM, SGLang, TGI and llama.cpp give their series; the values are made up."""

VLLM = b"""\
# HELP vllm:num_requests_running Number of requests in model execution batches.
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="meta-llama/Llama-3.1-8B"} 12.0
vllm:num_requests_running{engine="1",model_name="meta-llama/Llama-3.1-8B"} 10.0
# TYPE vllm:num_requests_waiting gauge
vllm:num_requests_waiting{engine="0",model_name="meta-llama/Llama-3.1-8B"} 3.0
vllm:num_requests_waiting{engine="1",model_name="meta-llama/Llama-3.1-8B"} 0.0
# TYPE vllm:gpu_cache_usage_perc gauge
vllm:gpu_cache_usage_perc{engine="0",model_name="meta-llama/Llama-3.1-8B"} 0.9
# TYPE vllm:kv_cache_usage_perc gauge
vllm:kv_cache_usage_perc{engine="0",model_name="meta-llama/Llama-3.1-8B"} 0.25
vllm:kv_cache_usage_perc{engine="1",model_name="meta-llama/Llama-3.1-8B"} 0.75
# TYPE vllm:prefix_cache_queries_total counter
vllm:prefix_cache_queries_total{engine="0",model_name="meta-llama/Llama-3.1-8B"} 4.1e+06
# TYPE vllm:prefix_cache_queries_created gauge
vllm:prefix_cache_queries_created{engine="0",model_name="meta-llama/Llama-3.1-8B"} 1.7e+09
# TYPE vllm:prefix_cache_hits_total counter
vllm:prefix_cache_hits_total{engine="0",model_name="meta-llama/Llama-3.1-8B"} 1.025e+06
# TYPE vllm:num_preemptions_total counter
vllm:num_preemptions_total{engine="0",model_name="meta-llama/Llama-3.1-8B"} 7.0
vllm:prompt_tokens_total{engine="0",model_name="meta-llama/Llama-3.1-8B"} 51200.0
vllm:generation_tokens_total{engine="0",model_name="meta-llama/Llama-3.1-8B"} 25600.0
vllm:request_success_total{engine="0",finished_reason="stop",model_name="meta-llama/Llama-3.1-8B"} 90.0
vllm:request_success_total{engine="0",finished_reason="length",model_name="meta-llama/Llama-3.1-8B"} 10.0
# TYPE vllm:request_queue_time_seconds histogram
vllm:request_queue_time_seconds_bucket{engine="0",le="0.3",model_name="meta-llama/Llama-3.1-8B"} 80.0
vllm:request_queue_time_seconds_bucket{engine="0",le="+Inf",model_name="meta-llama/Llama-3.1-8B"} 100.0
vllm:request_queue_time_seconds_count{engine="0",model_name="meta-llama/Llama-3.1-8B"} 100.0
vllm:request_queue_time_seconds_sum{engine="0",model_name="meta-llama/Llama-3.1-8B"} 12.5
"""
SGLANG = b"""\
# TYPE sglang:num_running_reqs gauge
sglang:num_running_reqs{model_name="m",tp_rank="0"} 5.0
# TYPE sglang:num_queue_reqs gauge
sglang:num_queue_reqs{model_name="m",tp_rank="0"} 2.0
# TYPE sglang:token_usage gauge
sglang:token_usage{model_name="m",tp_rank="0"} 0.42
# TYPE sglang:cache_hit_rate gauge
sglang:cache_hit_rate{model_name="m",tp_rank="0"} 0.125
sglang:prompt_tokens_total{model_name="m"} 8000.0
sglang:generation_tokens_total{model_name="m"} 4400.0
sglang:cached_tokens_total{cache_source="device",model_name="m"} 1500.0
sglang:cached_tokens_total{cache_source="host",model_name="m"} 500.0
sglang:num_requests_total{model_name="m"} 40.0
sglang:num_retracted_requests_total{model_name="m"} 1.0
sglang:queue_time_seconds_sum{model_name="m"} 4.0
sglang:queue_time_seconds_count{model_name="m"} 40.0
sglang:engine_load_weights_time{model_name="m"} 21.5
"""
TGI = b"""\
# TYPE tgi_batch_current_size gauge
tgi_batch_current_size 4
# TYPE tgi_queue_size gauge
tgi_queue_size 7
# TYPE tgi_request_success counter
tgi_request_success 44
# TYPE tgi_request_generated_tokens histogram
tgi_request_generated_tokens_bucket{le="1"} 0
tgi_request_generated_tokens_sum 8123
tgi_request_generated_tokens_count 44
tgi_request_input_length_sum 9000
tgi_request_input_length_count 44
tgi_request_queue_duration_sum 2.2
tgi_request_queue_duration_count 44
"""
LLAMA_CPP = b"""\
# HELP llamacpp:prompt_tokens_total Number of prompt tokens processed.
# TYPE llamacpp:prompt_tokens_total counter
llamacpp:prompt_tokens_total 512
llamacpp:tokens_predicted_total 1024
llamacpp:n_decode_total 700
# TYPE llamacpp:requests_processing gauge
llamacpp:requests_processing 1
llamacpp:requests_deferred 4
llamacpp:predicted_tokens_seconds nan
"""
