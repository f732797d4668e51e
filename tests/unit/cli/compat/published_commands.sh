# Command lines as the documentation of each tool uses them: the options and the values of its examples, in our own arrangement.
# A line that begins with #! says what of the next command has no counterpart and changes the load; a blank line ends a command.

# vLLM
vllm bench serve --backend vllm --model NousResearch/Hermes-3-Llama-3.1-8B --endpoint /v1/completions --dataset-name sharegpt \
  --dataset-path ShareGPT_V3_unfiltered_cleaned_split.json --num-prompts 10

vllm bench serve --backend vllm --model meta-llama/Llama-3.1-8B-Instruct --endpoint /v1/completions --dataset-name sharegpt \
  --dataset-path ShareGPT_V3_unfiltered_cleaned_split.json --num-prompts 100 --plot-timeline --timeline-itl-thresholds 2,5 \
  --plot-dataset-stats --save-result

vllm bench serve --port 9001 --save-result --save-detailed --backend vllm --model meta-llama/Llama-3.1-8B-Instruct \
  --endpoint /v1/completions --dataset-name custom --dataset-path data.jsonl --skip-chat-template --num-prompts 80 \
  --max-concurrency 1 --temperature=0.3 --top-p=0.75 --result-dir "./log/"

vllm bench serve --backend openai-responses --endpoint /v1/responses --model openai/gpt-oss-20b --dataset-name random \
  --random-input-len 1024 --random-output-len 1024 --num-prompts 200

vllm bench serve --backend vllm --model NousResearch/Hermes-3-Llama-3.1-8B --endpoint /v1/completions --dataset-name sharegpt \
  --dataset-path ShareGPT_V3_unfiltered_cleaned_split.json --top-k 10 --top-p 0.9 --temperature 0.5 --num-prompts 10

vllm bench serve --model meta-llama/Llama-3.1-8B-Instruct --dataset-name random --random-input-len 512 --random-output-len 128 \
  --ramp-up-strategy linear --ramp-up-start-rps 1 --ramp-up-end-rps 20 --num-prompts 100

vllm bench serve --backend openai --model meta-llama/Llama-2-7b-chat-hf --dataset-name prefix_repetition --num-prompts 100 \
  --prefix-repetition-prefix-len 512 --prefix-repetition-suffix-len 128 --prefix-repetition-num-prefixes 5 \
  --prefix-repetition-output-len 128

vllm bench serve --model facebook/opt-125m --dataset-name random --request-rate 10 --burstiness 0.5 --num-prompts 100 \
  --random-range-ratio 0.3 --goodput ttft:500 tpot:50 --percentile-metrics ttft,tpot,itl,e2el --metric-percentiles 50,90,99

vllm bench serve --model $MODEL --base-url http://10.0.0.1:8000 --dataset-name random --random-input-len 4000 \
  --random-output-len 1000 --random-prefix-len 64 --max-concurrency 64 --num-prompts 640 --ignore-eos --trust-remote-code \
  --seed 12345 --metadata version=0.11 tp=8 --save-result --result-dir results --result-filename run.json

python3 benchmarks/benchmark_serving.py --backend openai-chat --model Qwen/Qwen2.5-7B-Instruct --host 127.0.0.1 --port 8000 \
  --endpoint /v1/chat/completions --dataset-name random --random-input-len 1000 --random-output-len 200 --num-prompts 50 \
  --request-rate inf --disable-tqdm --tokenizer Qwen/Qwen2.5-7B-Instruct

vllm bench serve --model meta-llama/Meta-Llama-3-8B-Instruct --dataset-name burstgpt --dataset-path BurstGPT.csv \
  --request-rate 5 --num-prompts 20

OPENAI_API_KEY=sk-1 vllm bench serve --base-url https://api.example.com --backend openai-chat --endpoint /v1/chat/completions \
  --model some/model --header x-tenant=blue --dataset-name random --input-len 256 --output-len 64 --num-prompts 20 \
  --extra-body '{"chat_template_kwargs": {"enable_thinking": false}}' --insecure

#! --dataset-path
vllm bench serve --backend openai-chat --model Qwen/Qwen2-VL-7B-Instruct --endpoint /v1/chat/completions --dataset-name hf \
  --dataset-path lmarena-ai/VisionArena-Chat --hf-split train --num-prompts 1000

vllm bench serve --backend vllm --model meta-llama/Llama-2-7b-hf --dataset-name random --lora-modules one two --num-prompts 100 \
  --trust-remote-code

vllm bench serve --backend openai-embeddings --model jinaai/jina-embeddings-v3 --endpoint /v1/embeddings --dataset-name random \
  --random-input-len 500 --num-prompts 1000 --request-rate inf

vllm bench serve --backend vllm-pooling --model internfloat/e5-mistral-7b-instruct --endpoint /pooling --dataset-name random \
  --random-input-len 100 --num-prompts 50

# SGLang
python3 -m sglang.bench_serving --backend sglang --host 127.0.0.1 --port 30000 --num-prompts 1000 \
  --model meta-llama/Llama-3.1-8B-Instruct --dataset-path ShareGPT_V3_unfiltered_cleaned_split.json

python3 -m sglang.bench_serving --backend sglang --dataset-name random --num-prompts 3000 --random-input 1024 \
  --random-output 1024 --random-range-ratio 0.5

python3 -m sglang.bench_serving --backend sglang --host 127.0.0.1 --port 30000 --model meta-llama/Llama-3.1-8B-Instruct \
  --dataset-name random --random-input-len 1024 --random-output-len 1024 --random-range-ratio 0.5 --num-prompts 2000 \
  --request-rate 100 --max-concurrency 512 --output-file sglang_random.jsonl --output-details

python3 -m sglang.bench_serving --backend vllm --base-url http://127.0.0.1:8000 --model meta-llama/Llama-3.1-8B-Instruct \
  --dataset-name sharegpt --dataset-path ShareGPT_V3_unfiltered_cleaned_split.json --num-prompts 1000 --sharegpt-output-len 256

python3 -m sglang.bench_serving --backend vllm-chat --base-url http://127.0.0.1:8000 --model meta-llama/Llama-3.1-8B-Instruct \
  --dataset-name random --num-prompts 500 --apply-chat-template

python -m sglang.bench_serving --backend sglang-oai-chat --dataset-name image --num-prompts 500 --image-count 3 \
  --image-resolution 720p --random-input-len 512 --random-output-len 512

python3 -m sglang.bench_serving --backend sglang --host 127.0.0.1 --port 30000 --model meta-llama/Llama-3.1-8B-Instruct \
  --dataset-name generated-shared-prefix --gsp-num-groups 64 --gsp-prompts-per-group 16 --gsp-system-prompt-len 2048 \
  --gsp-question-len 128 --gsp-output-len 256 --num-prompts 1024

python3 -m sglang.bench_serving --backend sglang --host 127.0.0.1 --port 30000 --model meta-llama/Llama-3.1-8B-Instruct \
  --dataset-name random --tokenize-prompt --random-input-len 2048 --random-output-len 256 --random-range-ratio 0.2

python3 -m sglang.bench_serving --backend trt --base-url http://127.0.0.1:8000 --model your-trt-llm-model \
  --dataset-name random --num-prompts 100 --disable-ignore-eos

python3 ../../python/sglang/bench_serving.py --backend vllm --dataset-name random --num-prompt 300 --request-rate 1 \
  --random-input 4096 --random-output 1024 --random-range-ratio 0.125 --model meta-llama/Meta-Llama-3-8B-Instruct

#! --dataset-name --mooncake-num-rounds
python3 -m sglang.bench_serving --backend sglang --host 127.0.0.1 --port 30000 --model model-name \
  --dataset-name mooncake-conversation --mooncake-slowdown-factor 1.0 --mooncake-num-rounds 1000 --use-trace-timestamps true \
  --random-output-len 256

# GuideLLM
guidellm benchmark --target "http://localhost:8000" --data "prompt_tokens=100,output_tokens=50,samples=1000" \
  --profile constant --rate 5 --model m

guidellm benchmark --target http://localhost:8000 --model m --profile concurrent --rate 10,20 --max-seconds 30 \
  --data prompt_tokens=256,output_tokens=128

guidellm benchmark --target "http://localhost:8000" --model m --rate-type synchronous --max-requests 20 \
  --data '{"prompt_tokens": 512, "output_tokens": 128}' --output-path benchmarks.json

guidellm benchmark run --target http://localhost:8000 --model m --rate-type throughput --max-requests 100 --random-seed 42 \
  --data "prompt_tokens=128,output_tokens=64" --processor meta-llama/Llama-3.1-8B-Instruct --disable-progress

guidellm benchmark --target http://localhost:8000/v1 --model m --rate-type poisson --rate 10 --max-seconds 120 \
  --request-type text_completions --backend-kwargs '{"api_key": "sk-2"}' \
  --data '{"prompt_tokens":1000,"prompt_tokens_min":1,"prompt_tokens_max":4096,"prompt_tokens_stdev":150,"output_tokens":200}'

guidellm run --backend kind=openai_http,target=http://localhost:8000,model=m --profile kind=poisson,rate=10 \
  --constraint kind=max_duration,seconds=30 --data kind=synthetic_text,prompt_tokens=256,output_tokens=128

guidellm benchmark --target "http://localhost:8000" --rate-type sweep --max-seconds 30 \
  --data "prompt_tokens=256,output_tokens=128"

guidellm benchmark --target http://localhost:8000 --model m --rate-type sweep --rate 6 --max-seconds 20 --warmup-percent 0.1 \
  --display-scheduler-stats --data "prompt_tokens=512,output_tokens=256"

guidellm run --backend kind=openai_http,target=http://localhost:8000 --profile kind=sweep \
  --constraint kind=max_duration,seconds=30 --data kind=synthetic_text,prompt_tokens=256,output_tokens=128

guidellm run --backend kind=openai_http,target=http://localhost:8000 --profile kind=sweep,sweep_size=6,strategy_type=poisson \
  --constraint kind=max_duration,seconds=60 --data kind=synthetic_text,prompt_tokens=256,output_tokens=128

guidellm benchmark --target http://localhost:8000 --model m --profile sweep --max-requests 5 \
  --data "prompt_tokens=100,output_tokens=100" --random-seed 42

guidellm benchmark --target http://localhost:8000 --model m --max-seconds 60 --data "prompt_tokens=256,output_tokens=128"

# AIPerf
aiperf profile --model "granite4:350m" --streaming --endpoint-type chat --tokenizer ibm-granite/granite-4.0-micro \
  --url http://localhost:11434

aiperf profile --model "granite4:350m" --streaming --endpoint-type chat --tokenizer ibm-granite/granite-4.0-micro \
  --url http://localhost:11434 --concurrency 5 --request-count 10

aiperf profile --model Qwen/Qwen3-0.6B --endpoint-type chat --endpoint /v1/chat/completions --streaming --url localhost:8000 \
  --synthetic-input-tokens-mean 100 --synthetic-input-tokens-stddev 0 --output-tokens-mean 200 --output-tokens-stddev 0 \
  --extra-inputs min_tokens:200 --extra-inputs ignore_eos:true --concurrency 4 --request-count 64 --warmup-request-count 1 \
  --num-dataset-entries 8 --random-seed 100

aiperf profile --model Qwen/Qwen3-0.6B --url localhost:8000 --endpoint-type completions --request-rate 10 --request-count 60 \
  --arrival-pattern constant --isl 128 --osl 64 --streaming --ui simple

aiperf profile -m openai/gpt-oss-20b -u http://localhost:30201 --endpoint-type chat --streaming --request-rate 100 \
  --concurrency 20 --benchmark-duration 60 --benchmark-grace-period 30 --isl 550 --isl-stddev 100 --osl 200 --api-key test-key \
  --goodput "time_to_first_token:200 inter_token_latency:20 request_latency:3000"

aiperf profile --model m --url localhost:8000 --endpoint-type chat --streaming --num-conversations 10 --session-turns-mean 5 \
  --session-turns-stddev 0 --session-turn-delay-mean 1000 --concurrency 2 --isl 100 --osl 50

aiperf profile --model m --url localhost:8000 --endpoint-type chat --streaming --input-file mooncake.jsonl \
  --custom-dataset-type mooncake_trace --fixed-schedule

aiperf profile --model m --url localhost:8000 --endpoint-type chat --streaming --request-cancellation-rate 50 \
  --request-cancellation-delay 0.5 --concurrency 10 --request-count 100 --isl 800 --osl 400

aiperf profile --model m --url localhost:8000 --endpoint-type chat --streaming --public-dataset sharegpt --concurrency 10

# GenAI-Perf
genai-perf profile -m HuggingFaceH4/zephyr-7b-beta --service-kind openai --endpoint-type chat --synthetic-input-tokens-mean 200 \
  --synthetic-input-tokens-stddev 0 --output-tokens-mean 100 --output-tokens-stddev 0 --streaming --request-count 50 \
  --warmup-request-count 10

genai-perf profile -m gpt2 --service-kind openai --endpoint-type completions --synthetic-input-tokens-mean 200 \
  --synthetic-input-tokens-stddev 0 --output-tokens-mean 100 --output-tokens-stddev 0 --request-count 50

genai-perf profile -m gpt2 --service-kind triton --backend vllm --synthetic-input-tokens-mean 200 \
  --synthetic-input-tokens-stddev 0 --output-tokens-mean 100 --output-tokens-stddev 0 --output-tokens-mean-deterministic \
  --streaming --request-count 50 --warmup-request-count 10

genai-perf profile -m TinyLlama-1.1B-Chat-v1.0 --tokenizer TinyLlama/TinyLlama-1.1B-Chat-v1.0 --endpoint-type chat \
  --random-seed 123 --synthetic-input-tokens-mean 128 --synthetic-input-tokens-stddev 0 --output-tokens-mean 128 \
  --output-tokens-stddev 0 --request-count 100 --request-rate 10 --profile-export-file my_profile_export.json \
  --url localhost:8000 --streaming

genai-perf profile --model deepseek-ai/DeepSeek-R1 --tokenizer /workspace/tokenizer --endpoint-type chat \
  --endpoint /v1/chat/completions --streaming --url http://localhost:8000 --synthetic-input-tokens-mean 1000 \
  --synthetic-input-tokens-stddev 0 --output-tokens-mean 1000 --output-tokens-stddev 0 --extra-inputs ignore_eos:true \
  --concurrency 16 --request-count 160 --warmup-request-count 32 --num-dataset-entries 192 --random-seed 42 -- -v \
  --max-threads 256 -H 'Authorization: Bearer NOT USED' -H 'Accept: text/event-stream'

# evalscope
evalscope perf --parallel 20 --model Qwen2.5-0.5B-Instruct --url http://127.0.0.1:8801/v1/chat/completions --api openai \
  --dataset random --min-tokens 128 --max-tokens 128 --prefix-length 64 --min-prompt-length 1024 --max-prompt-length 2048 \
  --number 100 --tokenizer-path Qwen/Qwen2.5-0.5B-Instruct --debug

evalscope perf --parallel 1 10 50 --number 10 20 100 --model Qwen2.5-0.5B-Instruct \
  --url http://127.0.0.1:8801/v1/chat/completions --api openai --dataset random --max-tokens 1024 --min-tokens 1024 \
  --prefix-length 0 --min-prompt-length 1024 --max-prompt-length 1024 --tokenizer-path Qwen/Qwen2.5-0.5B-Instruct \
  --extra-args '{"ignore_eos": true}'

evalscope perf --parallel 20 --model Qwen2.5-VL-3B-Instruct --url http://127.0.0.1:8801/v1/chat/completions --api openai \
  --dataset random_vl --min-tokens 128 --max-tokens 128 --prefix-length 0 --min-prompt-length 100 --max-prompt-length 100 \
  --image-width 512 --image-height 512 --image-format RGB --image-num 1 --number 100 \
  --tokenizer-path Qwen/Qwen2.5-VL-3B-Instruct --debug

evalscope perf --parallel 2 --number 10 --model text-embedding-v4 --url https://embed.example.com/v1/embeddings --api-key sk-3 \
  --api openai_embedding --dataset random_embedding --min-prompt-length 256 --max-prompt-length 256 \
  --tokenizer-path Qwen/Qwen3-Embedding-0.6B

evalscope perf --url http://127.0.0.1:8000/v1/completions --model qwen2.5 --api openai --dataset random --open-loop \
  --rate 5 10 20 --number 50 100 200 --max-tokens 64 --min-prompt-length 128 --max-prompt-length 128 --stream

evalscope perf --url 'http://127.0.0.1:8000/v1/chat/completions' --parallel 2 --model 'qwen2.5' --log-every-n-query 10 \
  --read-timeout 120 --connect-timeout 120 --number 20 --max-prompt-length 128000 --min-prompt-length 128 --api openai \
  --temperature 0.7 --max-tokens 1024 --stop '<|im_end|>' --dataset openqa --stream

# inference-perf
inference-perf --config_file config.yml

inference-perf --server.type vllm --server.base_url http://0.0.0.0:8000 --server.model_name m --server.ignore_eos true \
  --api.type chat --api.streaming true --data.type shared_prefix --data.shared_prefix.num_groups 32 \
  --data.shared_prefix.num_prompts_per_group 32 --data.shared_prefix.system_prompt_len 2048 \
  --data.shared_prefix.question_len 256 --data.shared_prefix.output_len 256 --load.type poisson \
  --load.stages '[{"rate": 2, "duration": 50}, {"rate": 5, "duration": 50}]'

inference-perf --server.base_url http://0.0.0.0:8000 --server.model_name m --api.type completion --api.streaming true \
  --data.type random --data.input_distribution.min 10 --data.input_distribution.max 100 --data.input_distribution.mean 50 \
  --data.input_distribution.std_dev 10 --data.output_distribution.mean 50 --load.type concurrent \
  --load.stages '[{"num_requests": 40, "concurrency_level": 4}]'

# More of GuideLLM, AIPerf, GenAI-Perf, evalscope and inference-perf
uvx --from guidellm==0.6.0 guidellm benchmark --target http://127.0.0.1:8000 --model Qwen/Qwen3-8B --profile \
  concurrent --rate 16 --max-seconds 120 --data prompt_tokens=512,output_tokens=128 --data-samples 256 --output-path \
  out/c16/benchmarks.json

python3 -m guidellm benchmark --target http://localhost:8000/v1 --rate-type constant --rate 5 --max-requests 100 \
  --data "prompt_tokens=128,output_tokens=64" --output r.json 2>&1 | tee /tmp/guidellm_output.log

podman run --rm -it -v "./results:/results:rw" -e \
  GUIDELLM__SPEC__BACKEND='{"kind": "openai_http", "target": "http://localhost:8000"}' -e \
  GUIDELLM__SPEC__PROFILE='{"kind": "sweep"}' -e GUIDELLM__SPEC__CONSTRAINTS='[{"kind": "max_duration", "seconds": 30}]' \
  -e GUIDELLM__SPEC__DATA='[{"kind": "synthetic_text", "prompt_tokens": 256, "output_tokens": 128}]' \
  ghcr.io/vllm-project/guidellm:latest

guidellm benchmark --target http://h:8000 --model m --data "prompt_tokens=512,output_tokens=256" --rate-type \
  concurrent --rate 1,2,4,8 --max-seconds 300 --output-dir /results --outputs json,html

python -m guidellm benchmark run --target "http://127.0.0.1:8000" --backend-type openai_http --model "Qwen2.5-0.5B" \
  --processor "Qwen/Qwen2.5-0.5B-Instruct" --processor-args '{"trust_remote_code": true}' --data \
  "prompt_tokens=256,output_tokens=256" --rate-type concurrent --rate 8 --max-requests 64 --max-seconds 600 \
  --random-seed 0 --output-path ./r.json

guidellm benchmark --target http://h:1 --model m --processor p --data "prompt_tokens=512,output_tokens=128" \
  --rate-type concurrent --rate 32 --backend-kwargs '{"timeout":100000}' --max-seconds 120 --output-dir out --outputs \
  o.json

guidellm benchmark run --target "https://h/llm-d/m" --rate-type concurrent --rate 8 --max-seconds 120 --random-seed \
  889 --data '{"prompt_tokens":512,"output_tokens":128,"prefix_tokens":10000,"turns":5,"prefix_count":16}' \
  --sample-requests 0

guidellm benchmark run --target http://t --model Qwen/Qwen3-4B --data prompts-10.csv --rate-type concurrent --rate 10 \
  --max-seconds 120 --output-path results-10.json

guidellm benchmark --target "http://i:8000" --rate-type concurrent --rate 128 --max-requests 1330 --max-seconds 600 \
  --data "prompt_tokens=1000,output_tokens=100" --output-path=out/result.csv

guidellm --target http://localhost:8000/v1 --model Phi-3 --data 'prompt_tokens=128,generated_tokens=128' --data-type \
  emulated --tokenizer "hf-internal-testing/llama-tokenizer" --max-requests 2 --rate-type concurrent --rate 2

guidellm benchmark --scenario chat --target http://localhost:8000

guidellm benchmark run --target http://t --model m --data prompts.json --rate "1,2" --rate-type constant --max-seconds \
  30 --max-requests 50 --output-path r.json --disable-console-interactive

guidellm benchmark run --target http://p/v1 --profile concurrent --rate 4 --max-seconds 120 --data \
  wildchat_guidellm.jsonl --data-column-mapper '{"text_column": "prompt"}' --data-samples 40 --output-dir o --outputs \
  json --request-type chat_completions --backend-kwargs '{"timeout": 600}' --disable-console-interactive

guidellm benchmark run --target http://h:1 --model m --data "prompt_tokens=512,output_tokens=128" --profile concurrent \
  --rate 2 --max-requests 10 --random-seed 1 --disable-console --outputs /dev/null 2>/dev/null

guidellm benchmark run --target http://localhost:8000 --api-key sk-test-123 --profile sweep --data \
  "kind=synthetic_text,prompt_tokens=128,output_tokens=64" --max-requests 10 --outputs "benchmark.json,report.csv"

guidellm benchmark run --target http://t --model s --processor p --random-seed 7 --backend-kwargs \
  '{"extras": {"body": {"temperature": 0.6}}, "validate_backend": "http://t/v1/models"}' --profile concurrent --rate 8 \
  --data "prompt_tokens=512,output_tokens=256" --max-seconds 60 --output-path j.json

guidellm run --backend kind=openai_http,target=http://localhost:30080/v1,model=dummy-model --profile \
  kind=constant,rate=5 --data kind=synthetic_text,prompt_tokens=256,output_tokens=128 --constraint \
  kind=max_duration,seconds=90 --tokenizer kind=hf_auto,model=openai-community/gpt2 --output kind=json,path=r.json

guidellm run --backend \
  '{"kind":"openai_http","target":"http://127.0.0.1:30000","model":"moonshotai/Kimi-K3","request_format":"/v1/chat/completions","timeout":100000,"extras":{"body":{"reasoning_effort":"max","temperature":1.0,"top_p":0.95}}}' \
  --tokenizer '{"kind":"huggingface_auto","model":"moonshotai/Kimi-K3","load_kwargs":{"trust_remote_code":true}}' --data \
  'kind=synthetic_text,prompt_tokens=8000,output_tokens=1000' --profile 'kind=concurrent,warmup=0.1,cooldown=0.1' \
  --override profile.streams '1,4,16' --constraint 'kind=max_duration,seconds=150' --constraint \
  'kind=max_errors,count=10'

guidellm run --backend kind=openai_http,target=https://api.example.com/v1,api_key=sk-te --profile \
  kind=sweep,sweep_size=8 --constraint kind=max_duration,seconds=30 --data \
  kind=synthetic_text,prompt_tokens=256,output_tokens=128 --output kind=html,path=a.html --output kind=json,path=a.json

guidellm run --backend \
  '{"kind":"openai_http","target":"http://t","model":"m","stream":true,"timeout":600,"validate_backend":false}' \
  --profile '{"kind":"poisson","max_concurrency":512}' --override profile.rate "1,2,4" --metrics \
  '{"kind":"generative","sample_size":100}' --seed '{"kind":"static","value":20260919}' --data \
  '{"kind":"synthetic_text","prompt_tokens":512,"output_tokens":128}' --tokenizer \
  '{"kind":"huggingface_auto","model":"m"}' --constraint '{"kind":"max_duration","seconds":60}'

GUIDELLM__NUM_SWEEP_PROFILES=3 GUIDELLM__MAX_CONCURRENCY=128 GUIDELLM__REQUEST_TIMEOUT=60 guidellm benchmark --target \
  "http://localhost:8080/v1" --model m --max-seconds 120 --rate-type sweep --data \
  "prompt_tokens=1500,prompt_tokens_variance=150,output_tokens=250,output_tokens_variance=20" --output-path o.json

guidellm benchmark run --target "http://t" --model "m" --data "prompt_tokens=128,output_tokens=64" --max-requests \
  10000 --max-seconds "60" --output-path "o/s.json"

guidellm benchmark run --target "http://t" --model "m" --processor "m" --profile concurrent --rate "1" --max-seconds \
  60 --warmup 5 --random-seed 20260416 --data \
  'prompt_tokens=512,prompt_tokens_stdev=1,prompt_tokens_min=512,prompt_tokens_max=512,output_tokens=128,output_tokens_stdev=1,output_tokens_min=128,output_tokens_max=128' \
  --output-dir "o" --backend openai_http --backend-kwargs \
  '{"validate_backend": "/v1/models", "request_format": "/v1/completions"}'

GUIDELLM__MP_CONTEXT_TYPE=forkserver guidellm benchmark run --target http://localhost:8000 --model Qwen/Qwen3-4B \
  --processor Qwen/Qwen3-4B --profile sweep --data prompt_tokens=4096,output_tokens=256 --max-seconds 60 --random-seed \
  20260416 --output-dir o --backend openai_http --backend-kwargs \
  '{"validate_backend": "/v1/models", "request_format": "/v1/completions"}' --disable-console-interactive --outputs json \
  --outputs csv --outputs html

bash -c \
  "nohup guidellm benchmark run --data '{\"prompt_tokens\":1000,\"output_tokens\":100}' --profile throughput --rate '32' --backend openai_http --target 'http://t' --random-seed '1' --max-seconds '60' --sample-requests 0 --output-dir /models --outputs 'o.json' > /tmp/log 2>&1 &"

timeout 100 uv run --project "r" guidellm benchmark run --target "http://t" --model "s" --processor "p" --random-seed \
  "1" --backend-kwargs "{\"extras\": {\"body\": {\"temperature\": 0.7}}, \"validate_backend\": \"http://t/v1/models\"}" \
  --profile concurrent --rate "4" --data "prompt_tokens=512,output_tokens=256" --max-seconds "60" --output-path "j"

guidellm benchmark run --target "http://t" --model "m" --rate-type sweep --max-seconds 30 --data \
  "prompt_tokens=128,output_tokens=128" --output-path "./n.json"

guidellm --target http://localhost:8000 --model M --data-type emulated --data "prompt_tokens=512,generated_tokens=128" \
  --rate-type sweep --max-seconds 300 --output-path t.json

docker run --rm -it -v "./data/guidellm:/results:rw" -e GUIDELLM_TARGET=http://localhost:8000 -e \
  GUIDELLM_MODEL=Qwen/Qwen3-30B-A3B -e GUIDELLM_PROCESSOR=Qwen/Qwen3-30B-A3B -e GUIDELLM_RANDOM_SEED=2025 -e \
  GUIDELLM_RATE_TYPE=concurrent -e GUIDELLM_RATE=1,3,5,8 -e GUIDELLM_MAX_SECONDS=300 -e \
  GUIDELLM_DATA="prompt_tokens=4096,output_tokens=512" -e GUIDELLM__PREFERRED_ROUTE="chat_completions" -e \
  GUIDELLM__REQUEST_HTTP2=0 ghcr.io/vllm-project/guidellm:latest -- \
  --backend-args='{"extra_body":{"chat_template_kwargs":{"enable_thinking":false}}}'

guidellm run --backend kind=openai_http,target=http://localhost:8000 --profile kind=throughput --constraint \
  kind=max_requests,count=1000 --data kind=json_file,path=prompts.json --data-column-mapper \
  '{"kind":"generative_column_mapper","column_mappings":{"text_column":"prompt"}}'

aiperf profile --model OpenVINO/Qwen --tokenizer Qwen/Qwen3 --url "http://h:8000" --endpoint /v3/chat/completions \
  --endpoint-type chat --streaming --api-key "k" --synthetic-input-tokens-mean 512 --output-tokens-mean 256 \
  --extra-inputs ignore_eos:true --use-server-token-count --concurrency "4" --request-count 9 --warmup-request-count 1 \
  --artifact-dir "aiperf-c4"

aiperf profile --model moonshotai/Kimi-K2.5 --url "http://h:1" --endpoint-type chat --streaming --tokenizer \
  moonshotai/Kimi-K2.5 --tokenizer-trust-remote-code --synthetic-input-tokens-mean 1024 --synthetic-input-tokens-stddev \
  0 --output-tokens-mean 8192 --output-tokens-stddev 0 --num-prompts 1536 --num-requests 1536 --concurrency 512 \
  --artifact-dir "a" --ui simple

aiperf profile --model Qwen/Qwen3-32B --url localhost:8000 --streaming --input-file sinusoidal.jsonl \
  --custom-dataset-type mooncake_trace --goodput "time_to_first_token:500 inter_token_latency:50"

aiperf profile --url http://l:8000 --model glm-52 --endpoint-type chat --streaming --request-rate 2 \
  --request-rate-mode constant --concurrency 4 --request-count 8 --isl 3500 --isl-stddev 0 --osl 1500 --osl-stddev 0 \
  --num-profile-runs 3 --profile-run-cooldown-seconds 30 --use-server-token-count --random-seed 42 \
  --request-timeout-seconds 1800 --output-artifact-dir ./reports --export-level records --ui-type none

aiperf profile -m nvidia/Qwen3.6 --tokenizer nvidia/Qwen3.6 --input-file texts.jsonl --custom-dataset-type \
  mooncake_trace --num-requests 3541 --url http://f:8000 --endpoint-type chat --streaming --use-server-token-count \
  --extra-inputs ignore_eos:true --concurrency 32 --workers-max 32 --random-seed 42 --ui none \
  --tokenizer-trust-remote-code --request-timeout-seconds 1200

aiperf profile claude-opus-4-6,claude-haiku-4-5 --url localhost:8080 --endpoint-type anthropic-messages --input-file \
  mooncake.jsonl --custom-dataset-type conflux --fixed-schedule --fixed-schedule-auto-offset --streaming --tokenizer \
  gpt2

AIPERF_HTTP_CONNECTION_LIMIT=200 aiperf profile -m Qwen/Qwen3-32B --tokenizer Qwen/Qwen3-32B --input-file \
  mooncake.jsonl --custom-dataset-type mooncake_trace --fixed-schedule --url http://h:8000 --streaming --random-seed 42 \
  --workers-max 200 --request-timeout-seconds 1000 --profile-export-level records --record-processors 8 --artifact-dir \
  /tmp/a --goodput "time_to_first_token:5000 inter_token_latency:100"

aiperf profile --model m --tokenizer t --endpoint-type chat --endpoint v1/chat/completions --streaming --url \
  http://localhost:8888 --input-file mooncake.jsonl --custom-dataset-type mooncake_trace --fixed-schedule-auto-offset \
  --random-seed 1 --artifact-dir a -v -H "Authorization: Bearer NOT USED" -H "Accept: text/event-stream"

genai-perf profile -m gpt2 --endpoint-type chat --url http://localhost:8000 --server-metrics-url \
  http://localhost:9400/metrics --synthetic-input-tokens-mean 100 --synthetic-input-tokens-stddev 20 \
  --output-tokens-mean 50 --output-tokens-stddev 15 --streaming --concurrency 1 -v

genai-perf --endpoint http://localhost:8000/v1/chat/completions --model llama-3.1-8b --streaming --concurrency 10 \
  --num-requests 100

genai-perf -m gpt2 --service-kind triton --backend trtllm --prompt-source synthetic --num-prompts 100 --random-seed \
  123 --synthetic-input-tokens-mean 200 --synthetic-input-tokens-stddev 0 --streaming --output-tokens-mean 100 \
  --output-tokens-stddev 0 --output-tokens-mean-deterministic --tokenizer t --concurrency 1 --measurement-interval 4000 \
  --profile-export-file p.json --url localhost:8001

genai-perf profile -m m --endpoint-type chat --service-kind openai --num-sessions 10 --session-concurrency 5 \
  --session-turns-mean 2 --session-turns-stddev 0 --session-turn-delay-mean 1000 --session-turn-delay-stddev 5 \
  --synthetic-input-tokens-mean 50 --output-tokens-mean 50 --num-prefix-prompts 3 --prefix-prompt-length 15

genai-perf profile -m m --artifact-dir /a --concurrency 5 --measurement-interval 30000 --stability-percentage 10 \
  --endpoint-type chat --streaming -u inference-server:8000 --synthetic-input-tokens-mean 200 \
  --synthetic-input-tokens-stddev 0 --output-tokens-mean 100 --extra-inputs max_tokens:100 --extra-inputs min_tokens:100 \
  --extra-inputs ignore_eos:true --profile-export-file x.json

genai-perf analyze -m m --service-kind openai --endpoint-type chat --streaming --sweep-type concurrency --sweep-range \
  1:64 --url h:1 --request-count 10

evalscope perf --parallel 1 --number 4 --model m --url http://h:1/v1/chat/completions --api openai --warmup-num 2 \
  --dataset random --max-tokens 1024 --min-tokens 1024 --prefix-length 0 --min-prompt-length 20000 --max-prompt-length \
  20000 --tokenizer-path t --output-dir o --extra-args '{"ignore_eos": true}'

evalscope perf --url http://localhost:8887/v1/chat/completions --model qwen3-0.6b --api openai --parallel 20 --number \
  200 --dataset random --min-prompt-length 512 --max-prompt-length 512 --min-tokens 512 --max-tokens 512 --stream \
  --extra-args '{"ignore_eos":true,"enable_thinking":false}' --outputs-dir o --no-timestamp --tokenizer-path p

evalscope perf --api openai --url http://host:8000/v1/chat/completions -n 500 --parallel 16

python3 -m evalscope.perf.main --url "http://localhost:8010/v1/chat/completions" --model qwen_mm --api openai \
  --dataset random_vl --parallel 16 --number 100 --min-prompt-length 512 --max-prompt-length 512 --image-width 512 \
  --image-height 512 --image-format RGB --image-num 1 --max-tokens 256 --min-tokens 256 --temperature 0.0 \
  --tokenizer-path /data/m --extra-args '{"ignore_eos": true}' --log-every-n-query 10 --read-timeout 120 --name \
  caseA_mm_image

inference-perf --config_file sp.yml

# LLMPerf
OPENAI_API_KEY=secret_abcdefg OPENAI_API_BASE="http://localhost:8080/v1" python token_benchmark_ray.py \
  --model "meta-llama/Llama-2-7b-chat-hf" --mean-input-tokens 550 --stddev-input-tokens 150 --mean-output-tokens 150 \
  --stddev-output-tokens 10 --max-num-completed-requests 2 --timeout 600 --num-concurrent-requests 1 \
  --results-dir "result_outputs" --llm-api openai --additional-sampling-params '{}'

ANTHROPIC_API_KEY=secret_abcdefg python token_benchmark_ray.py --model "claude-2" --mean-input-tokens 550 \
  --stddev-input-tokens 150 --mean-output-tokens 150 --stddev-output-tokens 10 --max-num-completed-requests 2 --timeout 600 \
  --num-concurrent-requests 1 --results-dir "result_outputs" --llm-api anthropic --additional-sampling-params '{}'

# TensorRT-LLM
python -m tensorrt_llm.serve.scripts.benchmark_serving --model meta-llama/Llama-3.1-70B-Instruct --backend openai \
  --host 0.0.0.0 --port 8000 --num-prompts 1000 --dataset-name random --random-input-len 1024 --random-output-len 1024 \
  --random-ids --max-concurrency 128 --ignore-eos --tokenize-on-client --percentile-metrics "ttft,tpot,itl,e2el"

python -m tensorrt_llm.serve.scripts.benchmark_serving --model Qwen/Qwen2.5-VL-7B-Instruct --backend openai-chat \
  --dataset-name random_image --random-input-len 128 --random-output-len 128 --random-image-width 512 \
  --random-image-height 512 --random-num-images 1 --num-prompts 100 --max-concurrency 16 --ignore-eos \
  --endpoint /v1/chat/completions

python -m tensorrt_llm.serve.scripts.benchmark_serving --model m --backend openai --num-prompts 50 --dataset-name random \
  --random-input-len 128 --random-output-len 64 --random-prefix-len 0 --random-range-ratio 0.1 --trust-remote-code \
  --non-streaming --no-test-input --save-request-time-breakdown --request-rate 4

python3 -m sglang.bench_serving --backend sglang-embedding --model BAAI/bge-m3 --dataset-name random --random-input-len 20 \
  --num-prompts 5

# GenAI-Perf, as the benchmarking guide of NIM calls it
genai-perf profile -m meta/llama3-8b-instruct --endpoint-type chat --service-kind openai --streaming -u localhost:8000 \
  --synthetic-input-tokens-mean 200 --synthetic-input-tokens-stddev 0 --concurrency 10 --output-tokens-mean 5 \
  --extra-inputs max_tokens:5 --extra-inputs min_tokens:5 --extra-inputs ignore_eos:true --tokenizer meta/llama3 -- -v --max-threads=256

# AIPerf's traces
aiperf profile --model m --url localhost:8000 --endpoint-type chat --streaming --input-file mooncake.jsonl \
  --custom-dataset-type mooncake_trace --fixed-schedule --fixed-schedule-start-offset 0 --fixed-schedule-end-offset 2500

aiperf profile --model m --url localhost:8000 --endpoint-type chat --streaming --input-file weka.jsonl --custom-dataset-type weka_trace \
  --concurrency 4 --num-sessions 6 --session-header X-My-Session

guidellm benchmark --target http://localhost:8000 --rate-type synchronous --max-requests 5 \
  --data '{"type": "synthetic_text", "prompt_tokens": 128, "output_tokens": 32}'

# More of each tool
vllm bench serve --model NousResearch/Hermes-3-Llama-3.1-8B --dataset-name random --random-input-len 1000 \
  --random-output-len 100 --request-rate 5 --num-prompts 100 --percentile-metrics ttft,tpot --metric-percentiles 99 \
  --save-result --result-filename x.json

vllm bench serve --model $MODEL --dataset-name random --ignore-eos --num-prompts 1000 --request-rate inf \
  --random-input-len 1000 --random-output-len 1000 --max-concurrency 200 --percentile-metrics ttft,tpot,itl,e2el

python3 benchmarks/benchmark_serving.py --backend vllm --model mistralai/Mistral-7B-Instruct-v0.1 --dataset-name \
  sharegpt --dataset-path ShareGPT_V3_unfiltered_cleaned_split.json --num-prompts 200 --request-rate 4 --save-result

python benchmark_serving.py --backend tgi --model m --endpoint /generate_stream --dataset-name sharegpt --dataset-path \
  ShareGPT_V3_unfiltered_cleaned_split.json

python3 benchmark_serving.py --backend lmdeploy --dataset-name random --model m --num-prompts 100 --port 23333

python3 benchmark_serving.py --backend vllm --base-url http://localhost:8000 --dataset \
  ShareGPT_V3_unfiltered_cleaned_split.json --model m --tokenizer t --num-prompts 1000 --request-rate 10

vllm bench serve --host 10.0.0.1 --port 8192 --model deepseek-ai/DeepSeek-R1 --dataset-name random --random-input-len \
  3500 --random-output-len 1500 --num-prompts 1024 --request-rate 16 --max-concurrency 1024 --goodput ttft:3000 \
  tpot:50 --ignore-eos --trust-remote-code --use-chat-template

vllm bench serve --backend openai-chat --endpoint /v1/chat/completions --model m --dataset-name custom --dataset-path \
  data.jsonl --custom-output-len 64 --num-prompts 8 --num-warmups 5

python3 -m sglang.bench_serving --backend sglang --dataset-name random --num-prompts 500 --random-input 4096 \
  --random-output 2048 --random-range-ratio 1.0 --request-rate 2 --host 0.0.0.0 --port 30000

python3 -m sglang.bench_serving --backend vllm --num-prompts 1000 --dataset-name random --random-input 1024 \
  --random-output 1024 --port 21000

python3 -m sglang.bench_serving --backend sglang-oai --base-url http://127.0.0.1:8000 --dataset-name random-ids \
  --model m --random-input-len 1 --random-output-len 512 --random-range-ratio 1 --num-prompts 64 --max-concurrency 64 \
  --warmup-requests 64

python3 -m sglang.bench_serving --backend sglang-oai --dataset-name generated-shared-prefix --gsp-num-groups 5 \
  --gsp-prompts-per-group 64 --gsp-system-prompt-len 2048 --gsp-question-len 128 --gsp-output-len 256 \
  --max-concurrency 4 --model m --port 30000

python3 -m sglang.bench_serving --multi --request-rate-range 1,34,4 --random-input-len 1024 --dataset-name random \
  --num-prompts 10

guidellm benchmark run --target http://localhost:8000 --model m --data prompt_tokens=1000,output_tokens=1000 \
  --rate-type concurrent --rate 1,50,100 --max-seconds 60 --output-path r.json

guidellm benchmark --target http://localhost:8000 --profile concurrent --rate 16 --rate 32 --max-requests 500 --warmup \
  0.1 --cooldown 0.1 --data prompt_tokens=128,output_tokens=128 --request-type text_completions

guidellm benchmark --target http://localhost:8000 --data \
  '{"prefix_tokens": 2048, "prefix_count": 1, "prompt_tokens": 256, "output_tokens": 256}' --profile concurrent --rate \
  8 --max-seconds 30

guidellm run --backend kind=openai_http,target=http://localhost:8000 --profile kind=throughput,max_concurrency=10 \
  --constraint kind=max_requests,count=100 --data kind=synthetic_text,prompt_tokens=128,output_tokens=64

guidellm run --backend kind=openai_http,target=http://localhost:8000,request_format=/v1/completions --profile \
  kind=constant,rate=10,max_concurrency=32 --constraint kind=max_duration,seconds=30 --data \
  kind=synthetic_text,prompt_tokens=128,output_tokens=64 --output kind=json,path=r.json

aiperf profile --model Qwen/Qwen3-0.6B --endpoint-type chat --input-file prompts.jsonl --custom-dataset-type \
  single_turn --streaming --url localhost:8000 --osl 200 --request-count 10

aiperf profile --model m --endpoint-type chat --endpoint /v1/chat/completions --streaming --url localhost:8000 \
  --input-file texts.jsonl --custom-dataset-type mooncake_trace --concurrency 2 --warmup-request-count 1

aiperf profile --model m --url localhost:8000 --endpoint-type chat --streaming --request-rate 10 \
  --warmup-request-count 50 --request-count 500

aiperf profile --model m --url localhost:8000 --streaming --request-rate 20 --arrival-pattern gamma \
  --arrival-smoothness 2.0 --benchmark-duration 60

aiperf profile --model m --endpoint-type embeddings --endpoint /v1/embeddings --synthetic-input-tokens-mean 100 \
  --synthetic-input-tokens-stddev 0 --url localhost:8000 --request-count 20 --concurrency 4

aiperf profile --model m --url http://a:8000 http://b:8000 --endpoint-type chat --streaming --concurrency 10 \
  --request-count 100

aiperf profile --model m --url localhost:8000 --endpoint-type chat --image-width-mean 512 --image-height-mean 512 \
  --synthetic-input-tokens-mean 100 --streaming --request-count 20 --concurrency 4

aiperf profile --model m --url localhost:8000 --endpoint-type responses --streaming --concurrency 4 --request-count 20

aiperf profile --model m --url localhost:8000 --endpoint-type chat --streaming --concurrency 8 --request-count 50 \
  --num-profile-runs 5

aiperf profile --model m --url localhost:8000 --endpoint-type chat --streaming --prefix-prompt-length 512 \
  --num-prefix-prompts 8 --isl 100 --osl 10 --concurrency 4 --request-count 32

genai-perf profile -m gpt2 --service-kind openai --endpoint v1/chat/completions --endpoint-type chat --num-prompts 100 \
  --concurrency 1 --streaming --measurement-interval 10000

genai-perf profile -m m --endpoint-type chat --input-file prompts.jsonl --concurrency 4 --request-count 20

genai-perf profile -m m --endpoint-type chat --goodput request_throughput:5 time_to_first_token:300 --streaming \
  --concurrency 2

evalscope perf --url http://127.0.0.1:8000/v1/chat/completions --parallel 2 --model qwen2.5 --log-every-n-query 10 \
  --number 20 --api openai --temperature 0.9 --max-tokens 1024 --prompt \
  'Write a science fiction story, please begin your performance'

evalscope perf --url http://127.0.0.1:8000/v1/chat/completions --parallel 2 --model qwen2.5 --number 20 --api openai \
  --max-tokens 1024 --prompt @prompts.txt

evalscope perf --url http://127.0.0.1:8000/v1/chat/completions --parallel 10 --model m --number 100 --warmup-num 0.1 \
  --api openai --dataset random --min-prompt-length 100 --max-prompt-length 100 --stream

evalscope perf --url http://127.0.0.1:8000/v1/chat/completions --model m --api openai --dataset line_by_line \
  --dataset-path prompts.txt --parallel 4 --number 8 --max-tokens 64

OPENAI_API_BASE=http://h:1/v1 OPENAI_API_KEY=xyzxyz python token_benchmark_ray.py --model m --num-concurrent-requests \
  4 --max-num-completed-requests 20 --llm-api openai

aiperf profile --model m --url localhost:8000 --streaming --concurrency 100 --concurrency-ramp-duration 30 \
  --benchmark-duration 120

aiperf profile --model m --url localhost:8000 --streaming --request-rate 100 --request-rate-ramp-duration 60 \
  --benchmark-duration 120

aiperf profile --model m --url localhost:8000 --warmup-concurrency 50 --warmup-concurrency-ramp-duration 10 \
  --warmup-request-count 500 --concurrency 200 --request-count 2000

aiperf profile --model m --url localhost:8000 --streaming --request-rate 50 --warmup-duration 30 --warmup-request-rate \
  10 --warmup-grace-period 10 --benchmark-duration 60

aiperf profile -m m --endpoint-type chat --streaming --url localhost:8000 --request-count 20 --goodput \
  "time_to_first_token:100 inter_token_latency:3.40"

aiperf profile --model m --url localhost:8000 --endpoint-type chat --synthetic-input-tokens-mean 100 \
  --prefix-prompt-length 512 --prefix-prompt-pool-size 10 --request-count 10

aiperf profile --model m --url localhost:8000 --endpoint-type messages --streaming --concurrency 4 --request-count 20 \
  --osl 100

aiperf profile --model m --url localhost:8000 --endpoint-type completions --streaming --extra-inputs \
  '{"temperature": 0.7, "top_p": 0.9}' --extra-inputs seed:5 --request-count 20

aiperf profile --model m --url localhost:8000 --endpoint-type chat --streaming --use-legacy-max-tokens --extra-inputs \
  max_tokens:5 --header X-A:b -H "X-C: d" --concurrency 1,2,4 --request-count 20

aiperf profile --model m --url localhost:8000 --endpoint-type chat --isl 1000 --osl 1000 --num-prompts 10 --streaming \
  --random-seed 0 --concurrency 10 --request-rate inf

genai-perf profile -m m --endpoint-type chat --num-system-prompts 10 --system-prompt-length 512 \
  --synthetic-input-tokens-mean 128 --synthetic-input-tokens-stddev 0 --output-tokens-mean 128 --concurrency 10 \
  --request-count 100

genai-perf profile -m m --service-kind openai --endpoint-type chat --streaming --url localhost:8000 -- -H \
  "Authorization: Bearer k" -H "Accept: text/event-stream"

genai-perf profile -m m --endpoint-type chat --request-rate 5 --request-count 30 --streaming --artifact-dir art \
  --profile-export-file p.json --verbose --async

vllm bench serve --dataset-name random --random-input-len 20000 --random-output-len 250 --num-prompts 10 \
  --request-rate 0.5 --seed 42

vllm bench serve --backend openai --base-url http://localhost:8081 --model m --dataset-name random --seed 12345

vllm bench serve --model Qwen3-Embedding-8B --backend openai-embeddings --dataset-name random --host 127.0.0.1 --port \
  8888 --endpoint /v1/embeddings --tokenizer /root/x --random-input 200 --save-result --result-dir ./

HF_TOKEN=abcdef vllm bench serve --backend vllm --base-url http://h:8000 --dataset-name sharegpt --dataset-path \
  ShareGPT_V3_unfiltered_cleaned_split.json --model m --num-prompts 32 --request-rate 8 > /dev/null 2>&1

vllm bench serve --backend openai-chat --endpoint /v1/chat/completions --model m --dataset-name random \
  --random-input-len 128 --random-output-len 128 --num-prompts 20 --max-concurrency 4 --ready-check-timeout-sec 600 \
  --extra-body '{"temperature":0.6}' --header Authorization="Bearer k"

vllm bench serve --model m --dataset-name random --num-prompts 100 --ramp-up-strategy exponential --ramp-up-start-rps \
  1 --ramp-up-end-rps 10 --random-output-len 5

python -m sglang.bench_serving --backend sglang-oai-chat --dataset-name generated-shared-prefix --gsp-num-groups 1 \
  --gsp-system-prompt-len 80000 --gsp-question-len 128 --gsp-output-len 600 --gsp-prompts-per-group 20 \
  --max-concurrency 4 --request-rate inf --warmup-requests 0 --seed 1 --model m

python3 -m sglang.bench_serving --backend sglang-oai-chat --dataset-name image --num-prompts 64 --apply-chat-template \
  --random-output-len 32 --random-input-len 16 --image-resolution 480x720 --image-format jpeg --image-count 1 \
  --image-content random --random-range-ratio 1 --host=127.0.0.1 --port=8080

python -m sglang.bench_serving --backend sglang-oai --host 127.0.0.1 --port 30000 --served-model-name s --tokenizer t \
  --dataset-name random --random-input-len 2048 --random-output-len 128 --num-prompts 24 --max-concurrency 8

python3 -m sglang.bench_serving --backend sglang-oai --num-prompts 100 --request-rate 10 --dataset-name random \
  --random-input-len 256 --random-output-len 4096 --random-range-ratio 1 --warmup-requests 5

evalscope perf --parallel 5 10 20 --number 5 10 20 --model m --url http://h:8000/v1/chat/completions --api openai \
  --dataset random --max-tokens 2000 --min-tokens 2000 --max-prompt-length 10000 --min-prompt-length 5000 \
  --prefix-length 0

evalscope perf --model m --url http://h:8000/v1/chat/completions --api openai --dataset random --min-prompt-length \
  1000 --max-prompt-length 1000 --max-tokens 500 --rate 5 --number 50 --parallel 100 --stream --headers X-A=b \
  --tokenizer-path t

guidellm benchmark --target http://localhost:8000 --rate-type concurrent --rate 16 --max-seconds 300 --warmup-percent \
  0.0 --cooldown-percent 0.0 --data '{"prompt_tokens":128,"output_tokens":64}' --random-seed 42 --backend-type \
  openai_http --model m

GUIDELLM_TARGET=http://localhost:8000/v1 GUIDELLM_PROFILE=concurrent GUIDELLM_RATE=32,64 GUIDELLM_MAX_SECONDS=60 \
  GUIDELLM_DATA=prompt_tokens=512,output_tokens=128 GUIDELLM_OUTPUTS=json guidellm benchmark run

GUIDELLM__LOGGING__DISABLED=true GUIDELLM__REQUEST_TIMEOUT=60 GUIDELLM_RATE_TYPE=synchronous \
  GUIDELLM_TARGET=http://localhost:9 uv run guidellm benchmark run --data prompt_tokens=8,output_tokens=4 \
  --max-requests 3

docker run --rm -it -v ./results:/results:rw -e GUIDELLM_TARGET=http://localhost:8000 -e GUIDELLM_PROFILE=constant -e \
  GUIDELLM_RATE=2 ghcr.io/vllm-project/guidellm:latest guidellm benchmark --max-seconds 30 --data \
  prompt_tokens=256,output_tokens=128

GUIDELLM__OPENAI__MAX_OUTPUT_TOKENS=128 guidellm benchmark --target http://localhost:8000 --rate-type constant --rate \
  4 --max-seconds 10 --data prompts.txt

guidellm run --backend \
  '{"kind":"openai_http","target":"http://localhost:8000","extras":{"body":{"temperature":0.7,"top_p":0.9}}}' \
  --profile '{"kind":"poisson","rate":[5,10]}' --constraint kind=max_duration,seconds=30 --data \
  kind=synthetic_text,prompt_tokens=128,prompt_tokens_stdev=16,output_tokens=64 --tokenizer \
  kind=huggingface_auto,model=gpt2 --label env=a

# Out of recipes, scripts, issues and model cards of those who publish their measurements
vllm bench serve --seed 42 --burstiness 1.0 --backend vllm --host 127.0.0.1 --port 9999 --endpoint /v1/completions \
  --model MODEL_NAME --tokenizer MODEL_PATH --dataset-name random --num-prompts 64 --random-input-len 512 \
  --random-output-len 128 --ignore-eos

NO_PROXY=127.0.0.1,localhost no_proxy=127.0.0.1,localhost MODEL_DIR="$Q/Qwen3.5-27B" \
  vllm bench serve --backend openai-chat --host 127.0.0.1 --port 8001 --endpoint /v1/chat/completions --model Qwen3.5-27B \
    --tokenizer Qwen3.5-27B --dataset-name custom --dataset-path data.jsonl --num-prompts 5 --no-oversample \
    --max-concurrency 1 --request-rate 1 --percentile-metrics ttft,tpot,itl,e2el --metric-percentiles 50,95,99 --save-result \
    --result-dir out --result-filename result.json 2>&1 | tail -3

vllm bench serve --backend vllm --base-url http://127.0.0.1:8000 --model cpu-selftime-test --dataset-name random \
  --random-input-len 7000 --random-output-len 100 --random-range-ratio 0 --num-prompts 3 --max-concurrency 1 \
  --request-rate inf --ignore-eos --temperature 0

HF_HOME=/opt/huggingface /opt/vllm-rocm/bin/vllm bench serve --backend vllm --base-url http://127.0.0.1:8000 \
  --model Qwen/Qwen3.8-27B-FP8 --dataset-name random --num-prompts 32 --random-input-len 512 --random-output-len 128 \
  --ignore-eos --request-rate inf --max-concurrency 8 --seed 42

model=/data/amd/DeepSeek-R1-MXFP4-Preview
input_len=3584
output_len=1024
concurrency=64
prompts=128
vllm bench serve --host localhost --port 9000 --model ${model} --dataset-name random --random-input-len ${input_len} \
    --random-output-len ${output_len} --max-concurrency ${concurrency} --num-prompts ${prompts} \
    --percentile-metrics ttft,tpot,itl,e2el --ignore-eos --seed 123 2>&1 | tee log.client.log

vllm bench serve --model google/gemma-4-31B-it --dataset-name random --random-input-len 8000 --random-output-len 1000 \
  --request-rate 10000 --num-prompts 16 --ignore-eos

vllm bench serve --model m --host 127.0.0.1 --port 9001 --ignore-eos --dataset-name burstgpt --num-prompt 16 --append-result \
  --save-result --result-filename result_sla.jsonl --max-concurrency 32 --dataset-path BurstGPT.csv

vllm bench serve --backend openai-responses --model GLM-5.3-Flash --endpoint /v1/responses --dataset-name random \
  --random-input-len 8192 --random-output-len 1280 --num-prompts 32 --max-concurrency 32 --request-rate inf --ignore-eos \
  --temperature 0 --seed 12345

vllm bench serve --backend openai-chat --host 127.0.0.1 --port 8000 --model Qwen/Qwen2.5-1.5B-Instruct \
  --endpoint /v1/chat/completions --save-result --result-dir ./bench-results --metadata "version=0.6.0" "tp=1"

vllm bench serve --backend vllm --base-url http://127.0.0.1:8000 --model Qwen/Qwen3-8B --dataset-name sharegpt \
  --dataset-path ShareGPT_V3_unfiltered_cleaned_split.json --num-prompts 2000 --request-rate 10 --burstiness 1.0 \
  --max-concurrency 10 --save-result --append-result --result-filename w5_results.txt

docker exec -e PYTHONUNBUFFERED=1 vllm-bench vllm bench serve --backend openai-chat --base-url http://localhost:8000 \
  --endpoint /v1/chat/completions --model Qwen/Qwen3.6-27B --tokenizer Qwen/Qwen3.6-27B --served-model-name qwen3.6-27b-bf16 \
  --percentile-metrics ttft,tpot,itl,e2el --metric-percentiles 50,90,95,99 --seed 42 --save-result --result-dir out \
  --dataset-name random --random-input-len 4000 --random-output-len 500 --random-range-ratio 0.9 --num-prompts 200 \
  --request-rate 0.3 --burstiness 0.7

vllm bench serve --backend openai-chat --base-url http://h:8000/v1 --endpoint /v1/chat/completions --model served \
  --tokenizer /models/weights --trust-remote-code --dataset-name random --random-input-len 128 --random-output-len 32 \
  --random-range-ratio 0 --num-prompts 16 --max-concurrency 4 --num-warmups 4 --disable-tqdm \
  --percentile-metrics ttft,tpot,itl,e2el --metric-percentiles 50,95,99

podman exec --workdir /llm llm /bin/bash -lc 'source /opt/intel/oneapi/setvars.sh --force >/dev/null && exec vllm bench serve --backend openai --base-url http://127.0.0.1:8000 --model /models --dataset-name random --num-prompts 50 --random-input-len 1024 --random-output-len 512 --max-concurrency 8'

python benchmark_serving.py --backend vllm --dataset-name sonnet --dataset-path sonnet.txt --sonnet-input-len 2000 \
  --sonnet-output-len 1000 --sonnet-prefix-len 100 --host 10.0.0.2 --port 8868 --max-concurrency 16 --request-rate inf \
  --ignore-eos --model /m --num-prompt 1

vllm bench serve --model openai/gpt-oss-120b --dataset-name sonnet --dataset-path="./benchmarks/sonnet.txt" \
  --sonnet-input-len=1024 --sonnet-output-len=1024 --ignore-eos --num-prompt 1 --trust_remote_code --request-rate inf \
  --backend vllm --port=8000 --host 0.0.0.0

python -m vllm bench serve --base-url http://localhost:8868 --model DeepSeek-R1 --dataset-name sonnet \
  --sonnet-input-len 1024 --sonnet-output-len 128 --num-prompts 100 --request-rate 10

vllm bench serve --backend vllm --dataset-name prefix_repetition --prefix-repetition-prefix-len 22400 \
  --prefix-repetition-suffix-len 9600 --prefix-repetition-output-len 1024 --num-prompts 1 --prefix-repetition-num-prefixes 1 \
  --ignore-eos --model glm --tokenizer /weight/glm --seed 1000 --host 0.0.0.0 --port 8000 --endpoint /v1/completions \
  --max-concurrency 1 --request-rate 1 \

vllm bench serve --backend openai-chat --base-url http://127.0.0.1:19000 --endpoint /v1/chat/completions \
  --model Qwen/Qwen3-0.6B --tokenizer "$MODEL_PATH" --dataset-name prefix_repetition --num-prompts 150 \
  --prefix-repetition-num-prefixes 50 --prefix-repetition-prefix-len 896 --prefix-repetition-suffix-len 128 \
  --prefix-repetition-output-len 128 --disable-shuffle --request-rate inf --max-concurrency 1 --ready-check-timeout-sec 0 \
  --num-warmups 0 --ignore-eos --temperature 0.01 --percentile-metrics ttft,tpot,itl,e2el --seed 1234 \
  --extra-body '{"chat_template_kwargs": {"enable_thinking": false}}'

vllm bench serve --backend openai-chat --model Qwen/Qwen3-VL-32B-Instruct-Thinking-FP8 --tokenizer t --dataset-name random-mm \
  --base-url http://localhost:8090 --endpoint /v1/chat/completions --num-prompts 160 --random-input-len 6300 \
  --random-output-len 380 --random-mm-base-items-per-request 20 --random-mm-bucket-config "{(480, 864, 1): 1.0}" \
  --random-mm-num-mm-items-range-ratio 0.0 --max-concurrency 8 --percentile-metrics ttft,tpot,itl,e2el \
  --metric-percentiles 50,90,95,99 --trust-remote-code 2>&1 | tee b.txt

vllm bench serve --backend openai-chat --endpoint /v1/chat/completions --host localhost --port 8000 --model /d/Qwen3-VL \
  --dataset-name random-mm --random-mm-limit-mm-per-prompt '{"image": 1, "video": 0}' \
  --random-mm-bucket-config "{(800, 800, 1): 1.0}" --random-input-len 1024 --random-output-len 1024 --num-prompts 128 \
  --max-concurrency 64

vllm bench serve --backend vllm --model same --dataset-name timed_trace --dataset-path mooncake.jsonl --self-timed \
  --timed-trace-chunk-hash-size 512 --timed-trace-sec-multiplier 0.001

vllm bench serve --backend openai-chat --model Qwen/QwQ-32B --endpoint /v1/chat/completions --dataset-name custom \
  --dataset-path tokens.jsonl --num-prompts -1 --custom-output-len -1

vllm bench serve --port 8000 --seed $(date +%s) --model m --dataset-name random --random-input-len 1000 \
  --random-output-len 10 --num-prompts 1 --request-rate 0.5

for QPS in 0.1 0.15 0.2 0.25; do
    vllm bench serve --dataset-name random --random-input-len 20000 --random-output-len 250 --num-prompts 10 \
        --request-rate $QPS --seed 42
done

concurrency_list="32 64 128"
for concurrency in ${concurrency_list}; do
    num_prompts=$((concurrency * 5))
    vllm bench serve --model m --dataset-name random --random-input-len 1024 --random-output-len 1024 \
        --num-prompts ${num_prompts} --max-concurrency ${concurrency} --ignore-eos
done

vllm bench serve --model deepseek-ai/DeepSeek-V3 --dataset-name sharegpt --sharegpt-output-len 100 --port 9020 \
  --dataset-path ./ShareGPT_V3_unfiltered_cleaned_split.json --backend vllm --num-prompts 10

python3 ../benchmarks/benchmark_serving.py --backend vllm --model /m --trust-remote-code --host 10.0.0.1 --port 8000 \
  --dataset-name random --random-input-len 1024 --random-output-len 128 --random-range-ratio 1 --max-concurrency 16 \
  --num-prompts 64 --request-rate inf --seed 0 --ignore-eos --save-result --result-filename x.json

python3 bench_serving/benchmark_serving.py --model m --backend vllm --base-url http://0.0.0.0:8888 --dataset-name random \
  --random-input-len 1024 --random-output-len 1024 --random-range-ratio 0.8 --num-prompts $(( 64 * 10 )) --max-concurrency 64 \
  --request-rate inf --ignore-eos --save-result --percentile-metrics 'ttft,tpot,itl,e2el' --result-dir out \
  --result-filename r.json

python benchmarks/benchmark_serving.py --backend vllm --model meta-llama/Llama-3.3-70B-Instruct --num-prompts 200 --request-rate 10

python benchmark_serving.py --backend scalellm --tokenizer /m --model llama-3-8b-instruct-awq --dataset-name sharegpt \
  --dataset-path ./ShareGPT_V3_unfiltered_cleaned_split.json --num-prompts 500 --port 8010 --save-result --request-rate 2

python benchmark_serving.py --backend tensorrt-llm --endpoint /v2/models/ensemble/generate_stream --port 8000 --model m \
  --dataset-name random --random-input-len 100 --random-output-len 100 --num-prompts 10

python3 -m sglang.bench_serving --backend sglang --host "0.0.0.0" --port 33711 --tokenizer /m \
  --dataset-path ShareGPT_V3_unfiltered_cleaned_split.json --request-rate 4 --num-prompts 100 --output-file o.json --max-concurrency 50

python3 -m sglang.bench_serving --backend sglang-oai --host 127.0.0.1 --port 31084 --model /preset-models \
  --served-model-name mimo-v2-flash --tokenizer /preset-models --dataset-name random-ids --random-input-len 512 \
  --random-output-len 64 --random-range-ratio 1.0 --num-prompts 8 --max-concurrency 8 --warmup-requests 1 --disable-tqdm

bs=1
request_rate=inf
nohup python -m sglang.bench_serving --model /m/DeepSeek-V4-Flash-FP8/ --random-range-ratio 1.0 \
        --request-rate ${request_rate} --max-concurrency $bs --dataset-name random-ids --random-input-len 4096 \
        --random-output-len 1536 --dataset-path ShareGPT_V3_unfiltered_cleaned_split.json --num-prompts 50 --host 0.0.0.0 --port 8188

python3 -m sglang.bench_serving --dataset-name generated-shared-prefix --backend sglang --host 0.0.0.0 --port 30000 \
  --max-concurrency 1 --gsp-num-groups 1 --gsp-prompts-per-group 1 --gsp-system-prompt-len 115200 --gsp-question-len 12800 \
  --gsp-output-len 1000 --warmup-requests 1

docker exec ${CONTAINER_ID} python3 -m sglang.bench_serving --backend sglang --host 127.0.0.1 --port 30000 --num-prompts 1000 \
  --model Qwen/Qwen3-0.6B --dataset-name sharegpt --dataset-path ShareGPT_V3_unfiltered_cleaned_split.json

python3 -m sglang.bench_serving --backend vllm --model /models/qwq-32b --served-model-name qwq-32b --host qwq-32b-v1 --port 8000 \
  --dataset-name random --random-input 256 --random-output 10 --num-prompts=10 --random-range-ratio 1.0 \
  --dataset-path ShareGPT_V3_unfiltered_cleaned_split.json --disable-stream

python3 -m sglang.bench_serving --backend sglang --num-prompts 32

python3 -m sglang.bench_serving --backend sglang --dataset-name random --random-input-len 50000 --random-output-len 200 \
  --random-range-ratio 1 --num-prompts 64 --max-concurrency 64 --seed 42 --port 8000

python3 -m sglang.bench_serving --backend sglang --dataset-name random --num-prompt 300 --request-rate 1 --random-input 1024 \
  --random-output 1024 --output-file llama_405b_online_output.jsonl

python -m sglang.bench_serving --backend sglang --base-url http://h:30000 --dataset-name mooncake --mooncake-workload conversation \
  --dataset-path mooncake.jsonl --max-concurrency 16

python3 -m sglang.bench_one_batch_server --model openai/gpt-oss-120b --base-url http://localhost:30000 --batch-size 1 \
  --input-len 1024 --output-len 512

python3 -m sglang.bench_one_batch_server --model openai/gpt-oss-120b --base-url http://localhost:30000 --batch-size 32 \
  --input-len 1024 8192 --output-len 512 --show-report

python -m sglang.bench_one_batch_server --model-path None --base-url http://127.0.0.1:30000 --batch-size 1 8 16 --input-len 4096 \
  --output-len 1024 --show-report --result-filename r.jsonl

python3 -m sglang.bench_one_batch_server --dataset-path ShareGPT_V3_unfiltered_cleaned_split.json --model-path deepseek-ai/DeepSeek-R1-0528 \
  --base-url http://router:8000 --batch-size 3200 --input-len 1000 --output-len 1000 --skip-warmup

export OPENAI_API_KEY=""
export OPENAI_API_BASE="http://h:8000/v1"
python token_benchmark_ray.py --model "llama-3-70b-instruct" --mean-input-tokens 400 --stddev-input-tokens 2 \
  --mean-output-tokens 100 --stddev-output-tokens 2 --max-num-completed-requests 500 --timeout 600 --num-concurrent-requests 10 \
  --results-dir "result_outputs" --llm-api openai --additional-sampling-params '{}'

export OPENAI_API_KEY="not-needed"
export OPENAI_API_BASE="http://localhost:11435/v1"
python token_benchmark_ray.py --model "openai/gpt-oss-20b" --mean-input-tokens 100 --stddev-input-tokens 20 --mean-output-tokens 200 \
  --stddev-output-tokens 20 --max-num-completed-requests 50 --timeout 600 --num-concurrent-requests 10 --results-dir r \
  --llm-api openai --additional-sampling-params '{"temperature": 0.7}'

OPENAI_API_BASE=http://h:8000/v1 python token_benchmark_ray.py --model m --tokenizer-path t --mean-input-tokens 512 --stddev-input-tokens 128 \
  --mean-output-tokens 4096 --stddev-output-tokens 1024 --max-num-completed-requests 16 --timeout 1200 --num-concurrent-requests 1 \
  --results-dir r --llm-api openai --additional-sampling-params '{"max_tokens": 7192}' --metadata dtype=fp8,tp=8,engine=vllm

OPENAI_API_BASE=http://localhost:30000/v1/ OPENAI_API_KEY=EMPTY python -u token_benchmark_ray.py --model hugging-quants/L --mean-input-tokens 4096 \
  --stddev-input-tokens 409 --mean-output-tokens 256 --stddev-output-tokens 25 --max-num-completed-requests 32 --timeout 60000 \
  --num-concurrent-requests 128 --results-dir r --llm-api openai --additional-sampling-params '{}'

TOGETHERAI_API_KEY=abcdefg python token_benchmark_ray.py --model "together_ai/togethercomputer/CodeLlama-7b-Instruct" --mean-input-tokens 550 \
  --stddev-input-tokens 150 --mean-output-tokens 150 --stddev-output-tokens 10 --max-num-completed-requests 2 --timeout 600 \
  --num-concurrent-requests 1 --results-dir "result_outputs" --llm-api "litellm" --additional-sampling-params '{}'

python -m tensorrt_llm.serve.scripts.benchmark_serving --model nvidia/Llama-3.3-70B-Instruct-FP8 --dataset-name random --ignore-eos \
  --num-prompts 8192 --random-input-len 1024 --random-output-len 2048 --random-ids --max-concurrency 1024 \

python -m tensorrt_llm.serve.scripts.benchmark_serving --model m --dataset-name random --random-ids --random-input-len 100 \
  --random-output-len 10 --num-prompts 8 --host h --port 8000 --ignore-eos --non-streaming

for concurrency in 1 2 4 8; do
    num_prompts=$((concurrency * 5))
    python -m tensorrt_llm.serve.scripts.benchmark_serving --model /m --backend openai --dataset-name "random" --random-input-len 1024 \
        --random-output-len 1024 --random-prefix-len 0 --num-prompts ${num_prompts} --max-concurrency ${concurrency} --ignore-eos \
        --save-result --result-dir out --result-filename "concurrency_${concurrency}.json" --percentile-metrics "ttft,tpot,itl,e2el"
done

#! vllm bench throughput
vllm bench throughput --model m --dataset-name random --input-len 128 --output-len 128 --num-prompts 2 \
  --tensor-parallel-size 8 --gpu-memory-utilization 0.9

#! vllm bench latency
vllm bench latency --model m --input-len 128 --output-len 256 --batch-size 8 --num-iters 2 --num-iters-warmup 1

#! sglang.bench_offline_throughput
python -m sglang.bench_offline_throughput --model-path m --num-prompts 64 --dataset-name random

python3 -m sglang.bench_serving --backend sglang --dataset-name sharegpt --dataset-path ShareGPT_V3_unfiltered_cleaned_split.json \
  --num-prompts 48 --request-rate inf --sharegpt-context-len 3072 --disable-ignore-eos

evalscope perf --model Qwen/Qwen2.5-0.5B-Instruct --url http://127.0.0.1:8000/v1/chat/completions --api openai --dataset openqa --parallel 10 \
  --number 20 --tokenizer-path Qwen/Qwen2.5-0.5B-Instruct --min-prompt-length 2 --max-prompt-length 1024 --max-tokens 100 --stream

guidellm benchmark --target http://localhost:8000 --profile poisson --rate 4 --max-seconds 60 \
  --data "prompt_tokens=256,output_tokens=128,turns=4"

# Ensembles of TensorRT-LLM
genai-perf profile -m ensemble --service-kind triton --backend tensorrtllm --num-prompts 100 --random-seed 123 \
  --synthetic-input-tokens-mean 200 --synthetic-input-tokens-stddev 0 --streaming --output-tokens-mean 100 \
  --output-tokens-stddev 0 --output-tokens-mean-deterministic --tokenizer hf-internal-testing/llama-tokenizer \
  --concurrency 1 --measurement-interval 4000 --profile-export-file my_profile_export.json --url localhost:8001

python3 -m sglang.bench_serving --backend trt --base-url http://127.0.0.1:8000 --model your-trt-llm-model \
  --dataset-name random --num-prompts 100 --disable-ignore-eos

# Images of several sizes
vllm bench serve --backend openai-chat --model Qwen/Qwen2.5-VL-3B-Instruct --endpoint /v1/chat/completions \
  --dataset-name random-mm --num-prompts 100 --max-concurrency 10 --random-input-len 300 --random-output-len 40 \
  --random-mm-base-items-per-request 2 --random-mm-num-mm-items-range-ratio 0.5 --ignore-eos \
  --random-mm-limit-mm-per-prompt '{"image": 4, "video": 0}' --random-mm-bucket-config '{(256, 256, 1): 0.7, (720, 1280, 1): 0.3}'

python3 -m sglang.bench_serving --backend sglang --host 127.0.0.1 --port 30000 --model your-vlm-model --dataset-name image \
  --image-count 2 --image-resolution 720p --random-input-len 128 --random-output-len 256 --num-prompts 200 --apply-chat-template

# SGLang's groups and traces
python3 -m sglang.bench_serving --backend sglang --port 30000 --model m --dataset-name generated-shared-prefix \
  --gsp-num-groups 8 --gsp-prompts-per-group 4 --gsp-system-prompt-len 512 --gsp-question-len 64 --gsp-output-len 32 \
  --gsp-range-ratio 0.5 --request-rate 10

python3 -m sglang.bench_serving --backend sglang --port 30000 --model m --dataset-name mooncake --dataset-path mooncake.jsonl \
  --mooncake-slowdown-factor 2.0 --use-trace-timestamps --num-prompts 9

#! --mooncake-num-rounds
python3 -m sglang.bench_serving --backend sglang --host 127.0.0.1 --port 30000 --model model-name \
  --dataset-name mooncake-conversation --dataset-path mooncake.jsonl --mooncake-slowdown-factor 1.0 \
  --mooncake-num-rounds 1000 --use-trace-timestamps true --random-output-len 256

python -m sglang.bench_one_batch_server --model-path None --base-url http://127.0.0.1:30000 --batch-size 16 --input-len 1024 \
  --output-len 64 --lora-name adapter --profile --profile-activities CPU GPU --profile-start-step 8 --profile-steps 16

# TensorRT-LLM
python -m tensorrt_llm.serve.scripts.benchmark_serving --model openai/gpt-oss-120b --backend openai --dataset-name random \
  --random-input-len 1024 --random-output-len 1024 --random-prefix-len 0 --random-ids --num-prompts 160 --max-concurrency 32 \
  --ignore-eos --tokenize-on-client --percentile-metrics "ttft,tpot,itl,e2el"

#! trtllm-bench
trtllm-bench --model meta-llama/Llama-3.1-8B --model_path /models/llama throughput --dataset tokens.jsonl --backend pytorch
